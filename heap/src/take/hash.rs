//! Maps by address. Programs choose the addresses, so the hash has a secret of this process.

use std::collections::{HashMap, HashSet};

pub(crate) type FastMap<K, V> = HashMap<K, V, foldhash::fast::RandomState>;
pub(crate) type FastSet<K> = HashSet<K, foldhash::fast::RandomState>;
