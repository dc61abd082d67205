//! What each kind of leak suspect is, and what to do about it.

use gctrace_analysis::heap::report::SuspectHolder;

/// One or two sentences, ready to print.
pub(super) fn advice(holder: SuspectHolder) -> &'static str {
    match holder {
        SuspectHolder::DefaultArgument => {
            "A default argument is made once and lives as long as the function: every call adds to \
             the same object. Default to None and create it in the function."
        }
        SuspectHolder::LruCache => {
            "The cache of functools.lru_cache keeps arguments and results; on a method, self too. \
             Give it a maxsize, cache per instance (functools.cached_property), or call \
             cache_clear()."
        }
        SuspectHolder::Hooks => {
            "Hooks and callbacks keep what they refer to until they are removed: keep the handle \
             and call remove(), or register a weakref.WeakMethod."
        }
        SuspectHolder::Traceback => {
            "A traceback keeps the frames it went through, and all their variables. Keep the text \
             (traceback.format_exc()), or set exception.__traceback__ = None."
        }
        SuspectHolder::Closure => {
            "A function keeps the variables that it closes over. Pass what it needs as an argument, \
             or delete the variable when it is done."
        }
        SuspectHolder::ClassAttribute => {
            "An attribute of a class lives as long as the class, and is shared by its instances. \
             Create it in __init__ if it belongs to one of them."
        }
        SuspectHolder::ModuleAttribute => {
            "A variable of a module lives as long as the program. Bound it (collections.deque with \
             maxlen), clear it, or use weakref.WeakValueDictionary."
        }
        SuspectHolder::Frame => {
            "A variable of a function that runs: it goes when the function returns, or with del."
        }
        SuspectHolder::Other => "No usual place of leaks: see gctrace heap why.",
    }
}
