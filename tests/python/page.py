"""Opens a page of gctrace in a headless Chromium, uses it, and prints what it shows as JSON.

    page.py PAGE [FUNCTION]     FUNCTION: searched for in the flame graph

Exit code 77: there is no Chromium here.
"""
import json
import sys

import browser

# Roles that need a name, as of the accessibility tree.
NAMED = {"button", "checkbox", "combobox", "searchbox", "application", "img", "image", "link"}
TEXT = "document.querySelector({})?.textContent ?? null"
# How many pixels of the pauses have the color of a variable.
PIXELS = """(name => {
  const canvas = document.querySelector('canvas[role=application]'), context = canvas.getContext('2d');
  const paint = document.createElement('canvas').getContext('2d');
  paint.fillStyle = getComputedStyle(document.documentElement).getPropertyValue(name);
  paint.fillRect(0, 0, 1, 1);
  const [r, g, b] = paint.getImageData(0, 0, 1, 1).data, { data } = context.getImageData(0, 0, canvas.width, canvas.height);
  let count = 0;
  for (let i = 0; i < data.length; i += 4) if (Math.abs(data[i] - r) + Math.abs(data[i + 1] - g) + Math.abs(data[i + 2] - b) < 60) count++;
  return count;
})(%s)"""
CLICK = "[...document.querySelectorAll('button')].find(button => button.textContent === %s).click()"
FILTER = "(box => { box.checked = %s; box.dispatchEvent(new Event('change')); })(document.querySelector('[data-generation=\"2\"]'))"


def text(page, selector):
    return page.run(TEXT.format(json.dumps(selector)))


def seen(page, path, function):
    found = {}
    page.size(1100, 900)
    page.open(path)
    found["title"] = page.run("document.title")
    found["verdict"] = text(page, "h1")
    found["sections"] = page.run("[...document.querySelectorAll('section')].map(section => section.id)")
    found["text"] = page.run("document.body.innerText")
    # Elements that only a name could have made.
    found["foreign"] = page.run("document.querySelectorAll('img, iframe, object, embed, base, link, b b, [onerror]').length")
    found["scripts"] = page.run("document.scripts.length")
    found["hit"] = page.run("window.hit ?? null")
    nodes = page.call("Accessibility.getFullAXTree")["nodes"]
    roles = [(node.get("role", {}).get("value"), node.get("name", {}).get("value", "")) for node in nodes if not node.get("ignored")]
    found["nameless"] = [role for role, name in roles if role in NAMED and not name.strip()]
    if page.run("document.querySelectorAll('.drawing[data-kind=timeline]').length"):
        found["timeline"] = timeline(page)
    if page.run("document.querySelectorAll('.flame').length"):
        found["flame"] = text(page, ".drawing[data-kind=flame] .tools span")
        page.run("(search => { search.value = %s; search.dispatchEvent(new Event('input')); })(document.querySelector('.drawing[data-kind=flame] input'))" % json.dumps(function))
        found["found"] = page.run("document.querySelectorAll('.flame .found').length")
        found["share"] = text(page, ".drawing[data-kind=flame] .tools span")
    # Of each layer what it says, and its area.
    found["tiles"] = page.run("[...document.querySelectorAll('.tiles .edge')].map(edge => [edge.parentNode.textContent, edge.getAttribute('width') * edge.getAttribute('height')])")
    if page.run("document.querySelectorAll('table[data-sort]').length"):
        # By the column that is sorted already: once more is ascending.
        page.run("document.querySelector('table[data-sort] th[aria-sort] button')?.click()")
        found["sorted"] = page.run("document.querySelector('table[data-sort] th[aria-sort]')?.getAttribute('aria-sort') ?? null")
    theme = page.run("document.documentElement.dataset.theme")
    page.run("document.getElementById('theme').click()")
    found["themes"] = [theme, page.run("document.documentElement.dataset.theme")]
    page.size(360, 740)
    page.run("new Promise(done => requestAnimationFrame(() => requestAnimationFrame(done)))")
    found["width"] = page.run("document.documentElement.scrollWidth")
    # On paper: what heads the columns is there, and no control is.
    page.call("Emulation.setEmulatedMedia", media="print")
    found["printed"] = page.run("[...document.querySelectorAll('th:not(details th)')].every(head => !head.offsetWidth || head.innerText.trim() === head.textContent.trim())")
    found["controls"] = page.run("[...document.querySelectorAll('input, select, .tools button')].filter(control => control.offsetWidth).length")
    found["problems"] = page.problems
    return found


def timeline(page):
    """What the keys, the buttons and the filter do."""
    found = {}
    span = lambda: text(page, ".drawing[data-kind=timeline] .tools span")
    detail = lambda: text(page, ".drawing[data-kind=timeline] .detail")
    found["whole"] = span()
    found["pixels"] = page.run(PIXELS % json.dumps("--g2"))
    page.run(CLICK % json.dumps("Longest pause"))
    found["longest"], found["zoomed"] = detail(), span()
    found["stack"] = page.run("[...document.querySelectorAll('.detail li')].map(frame => frame.textContent)")
    page.run("document.querySelector('canvas[role=application]').focus()")
    keys = {}
    for key in ("-", "+", "ArrowLeft", "0"):
        page.press(key)
        keys[key] = span()
    page.press("n")
    keys["n"] = detail()
    found["keys"] = keys
    page.run(FILTER % "false")
    found["filtered"] = page.run(PIXELS % json.dumps("--g2"))
    page.run(CLICK % json.dumps("Longest pause"))
    found["other"] = detail()
    page.run(FILTER % "true")
    page.press("0")
    return found


def main():
    if browser.find() is None:
        return 77
    page = browser.Browser()
    try:
        print(json.dumps(seen(page, sys.argv[1], sys.argv[2] if len(sys.argv) > 2 else "no such function")))
    finally:
        page.close()
    return 0


if __name__ == "__main__":
    sys.exit(main())
