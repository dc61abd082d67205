//! Any value of a type, by its `Deserialize`: what a reader would ask of a text is decided by a list of numbers.

#![expect(clippy::expect_used, reason = "helpers of tests fail by panicking")]

use serde::de::value::{Error, StrDeserializer, StringDeserializer};
use serde::de::{
    DeserializeOwned, DeserializeSeed, IntoDeserializer as _, MapAccess, SeqAccess, Visitor,
};
use serde::{Deserializer, forward_to_deserialize_any};

/// Numbers that decide; once they are used up, all is 0 or empty.
#[derive(Debug)]
pub(super) struct Choices(std::vec::IntoIter<u64>);

impl Choices {
    pub(super) fn new(numbers: Vec<u64>) -> Self {
        Self(numbers.into_iter())
    }

    /// Any number, of any number of bits.
    pub(super) fn number(&mut self) -> u64 {
        let number = self.0.next().unwrap_or(0);
        number >> (number % 64)
    }

    /// A time of a machine that has been up for at most 140 years.
    pub(super) fn time(&mut self) -> u64 {
        self.number() >> 2
    }

    /// Start and end.
    pub(super) fn span(&mut self) -> (u64, u64) {
        let start_ns = self.time();
        (start_ns, start_ns + (self.time() >> 1))
    }

    /// A number of what another tool writes, too, where larger ones are taken for damage; perhaps none.
    pub(super) fn count(&mut self) -> Option<u64> {
        self.any::<Option<u64>>().map(|count| count >> 2)
    }

    /// What identifies something; 0 names nothing.
    pub(super) fn id<T: TryFrom<u64>>(&mut self) -> Option<T> {
        T::try_from(self.number().max(1)).ok().filter(|_| self.any())
    }

    pub(super) fn of<T: Clone>(&mut self, all: &[T]) -> T {
        all[self.below(all.len())].clone()
    }

    pub(super) fn any<T: DeserializeOwned>(&mut self) -> T {
        T::deserialize(self).expect("a value of each type")
    }

    fn below(&mut self, count: usize) -> usize {
        (self.0.next().unwrap_or(0) % count as u64) as usize
    }

    fn text(&mut self) -> String {
        let length = self.below(8);
        (0..length)
            .map(|_| char::from_u32(self.number() as u32 % 0x11_0000).unwrap_or('é'))
            .collect()
    }
}

/// Members of an object, or entries of a list.
struct Parts<'a> {
    choices: &'a mut Choices,
    names: &'static [&'static str],
    left: usize,
}

impl<'de> SeqAccess<'de> for Parts<'_> {
    type Error = Error;

    fn next_element_seed<T: DeserializeSeed<'de>>(
        &mut self,
        seed: T,
    ) -> Result<Option<T::Value>, Error> {
        let Some(left) = self.left.checked_sub(1) else { return Ok(None) };
        self.left = left;
        seed.deserialize(&mut *self.choices).map(Some)
    }
}

impl<'de> MapAccess<'de> for Parts<'_> {
    type Error = Error;

    fn next_key_seed<K: DeserializeSeed<'de>>(
        &mut self,
        seed: K,
    ) -> Result<Option<K::Value>, Error> {
        if let Some((name, names)) = self.names.split_first() {
            self.names = names;
            let name: StrDeserializer<'_, Error> = name.into_deserializer();
            return seed.deserialize(name).map(Some);
        }
        self.next_element_seed(seed)
    }

    fn next_value_seed<V: DeserializeSeed<'de>>(&mut self, seed: V) -> Result<V::Value, Error> {
        seed.deserialize(&mut *self.choices)
    }
}

macro_rules! numbers {
    ($($deserialize:ident $visit:ident $type:ty,)*) => {$(
        fn $deserialize<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Error> {
            visitor.$visit(self.number() as $type)
        }
    )*};
}

impl<'de> Deserializer<'de> for &mut Choices {
    type Error = Error;

    numbers! {
        deserialize_u8 visit_u8 u8,
        deserialize_u16 visit_u16 u16,
        deserialize_u32 visit_u32 u32,
        deserialize_u64 visit_u64 u64,
        deserialize_i8 visit_i8 i8,
        deserialize_i16 visit_i16 i16,
        deserialize_i32 visit_i32 i32,
        deserialize_i64 visit_i64 i64,
        deserialize_f64 visit_f64 f64,
    }

    fn deserialize_bool<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Error> {
        visitor.visit_bool(self.below(2) > 0)
    }

    fn deserialize_string<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Error> {
        visitor.visit_string(self.text())
    }

    fn deserialize_str<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Error> {
        self.deserialize_string(visitor)
    }

    /// Enums that take any word as well ask like this.
    fn deserialize_any<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Error> {
        let known = ["inject", "both", "incremental", "free-threaded"];
        match known.get(self.below(8)) {
            Some(word) => visitor.visit_str(word),
            None => self.deserialize_string(visitor),
        }
    }

    fn deserialize_option<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Error> {
        if self.below(2) > 0 { visitor.visit_some(self) } else { visitor.visit_none() }
    }

    fn deserialize_newtype_struct<V: Visitor<'de>>(
        self,
        _: &'static str,
        visitor: V,
    ) -> Result<V::Value, Error> {
        visitor.visit_newtype_struct(self)
    }

    fn deserialize_seq<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Error> {
        let left = self.below(4);
        self.deserialize_tuple(left, visitor)
    }

    fn deserialize_tuple<V: Visitor<'de>>(
        self,
        left: usize,
        visitor: V,
    ) -> Result<V::Value, Error> {
        visitor.visit_seq(Parts { choices: self, names: &[], left })
    }

    fn deserialize_map<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Error> {
        let left = self.below(4);
        visitor.visit_map(Parts { choices: self, names: &[], left })
    }

    fn deserialize_struct<V: Visitor<'de>>(
        self,
        _: &'static str,
        names: &'static [&'static str],
        visitor: V,
    ) -> Result<V::Value, Error> {
        visitor.visit_map(Parts { choices: self, names, left: 0 })
    }

    fn deserialize_enum<V: Visitor<'de>>(
        self,
        _: &'static str,
        words: &'static [&'static str],
        visitor: V,
    ) -> Result<V::Value, Error> {
        let word: StringDeserializer<Error> = self.of(words).to_owned().into_deserializer();
        visitor.visit_enum(word)
    }

    forward_to_deserialize_any! {
        i128 u128 f32 char bytes byte_buf unit unit_struct tuple_struct identifier ignored_any
    }
}
