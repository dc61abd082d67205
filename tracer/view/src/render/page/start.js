// Draws everything. `data-ready` on the root element: it is done.
(async () => {
  root.dataset.theme = setting("theme") || (prefersDark.matches ? "dark" : "light");
  for (const box of document.querySelectorAll(".drawing")) {
    try {
      await drawings[box.dataset.kind](box, runs[box.dataset.run]);
    } catch (error) {
      box.append(make("p", { class: "note" }, "This picture needs a newer browser (Chromium 80, Firefox 113, Safari 16.4)."));
      console.error(error);
    }
  }
  root.dataset.ready = "";
})();
