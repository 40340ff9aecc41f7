//! A table of an application's objects, found by index. Insertion and removal take constant time,
//! so contexts may have many objects.

/// Objects by index. An index that was freed is used again.
pub(super) struct Table<T> {
    slots: Vec<Option<T>>,
    /// Empty slots.
    free: Vec<u32>,
}

impl<T> Table<T> {
    pub(super) fn new() -> Self {
        Table { slots: Vec::new(), free: Vec::new() }
    }

    /// Adds an object and returns its index.
    pub(super) fn insert(&mut self, object: T) -> u32 {
        match self.free.pop() {
            Some(index) => {
                self.slots[index as usize] = Some(object);
                index
            }
            None => {
                self.slots.push(Some(object));
                self.slots.len() as u32 - 1
            }
        }
    }

    /// Removes an object.
    pub(super) fn remove(&mut self, index: u32) -> Option<T> {
        let object = self.slots.get_mut(index as usize)?.take()?;
        self.free.push(index);
        Some(object)
    }

    #[inline]
    pub(super) fn get(&self, index: u32) -> Option<&T> {
        self.slots.get(index as usize)?.as_ref()
    }

    #[inline]
    pub(super) fn get_mut(&mut self, index: u32) -> Option<&mut T> {
        self.slots.get_mut(index as usize)?.as_mut()
    }

    pub(super) fn iter(&self) -> impl Iterator<Item = &T> {
        self.slots.iter().flatten()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_index_names_one_object_and_is_used_again() {
        let mut table = Table::new();
        let indices = ["a", "b", "c"].map(|object| table.insert(object));
        assert_eq!(indices, [0, 1, 2]);
        assert_eq!((table.remove(1), table.remove(1), table.get(1)), (Some("b"), None, None));
        assert_eq!(table.insert("d"), 1);
        assert_eq!(table.iter().copied().collect::<Vec<_>>(), ["a", "d", "c"]);
        assert_eq!((table.remove(7), table.get_mut(7)), (None, None));
    }
}
