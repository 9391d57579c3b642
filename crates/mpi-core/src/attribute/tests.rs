//! Attributes against a model: a list of pairs and a log of the callbacks expected.

use std::sync::atomic::{AtomicBool, Ordering};

use proptest::prelude::*;

use super::*;

type Log = Arc<Mutex<Vec<String>>>;

/// Objects are names here.
struct Desk {
    keys: Keys<str>,
    log: Log,
    object: Arc<str>,
}

impl Desk {
    fn new() -> Self {
        Desk { keys: Keys::new(1000), log: Log::default(), object: Arc::from("desk") }
    }

    /// A key whose callbacks log themselves; copies are one greater, odd values are not copied.
    fn logging_key(&self) -> Arc<Key<str>> {
        let (copies, deletions) = (Arc::clone(&self.log), Arc::clone(&self.log));
        let copy = move |_: &Arc<str>, key: i32, value: Value| {
            copies.lock().unwrap().push(format!("copy {key} {}", value.0));
            Ok(value.0.is_multiple_of(2).then_some(Value(value.0 + 2)))
        };
        let delete = move |_: &Arc<str>, key: i32, value: Value| {
            deletions.lock().unwrap().push(format!("delete {key} {}", value.0));
            Ok(())
        };
        let number = self.keys.create(CopyRule::Call(Box::new(copy)), DeleteRule::Call(Box::new(delete)));
        self.keys.find(number.unwrap()).unwrap()
    }

    fn key_with_delete(
        &self,
        delete: impl Fn(&Arc<str>, i32, Value) -> Result<()> + Send + Sync + 'static,
    ) -> Arc<Key<str>> {
        let number = self.keys.create(CopyRule::Duplicate, DeleteRule::Call(Box::new(delete)));
        self.keys.find(number.unwrap()).unwrap()
    }

    fn taken_log(&self) -> Vec<String> {
        std::mem::take(&mut *self.log.lock().unwrap())
    }
}

#[derive(Clone, Debug)]
enum Call {
    Set(usize, usize),
    Delete(usize),
    Copy,
    Clear,
}

fn any_call() -> impl Strategy<Value = Call> {
    prop_oneof![
        4 => (0..5_usize, 0..100_usize).prop_map(|(key, value)| Call::Set(key, value)),
        2 => (0..5_usize).prop_map(Call::Delete),
        1 => Just(Call::Copy),
        1 => Just(Call::Clear),
    ]
}

proptest! {
    #[test]
    fn callbacks_come_in_the_order_of_the_model(calls in proptest::collection::vec(any_call(), 0..60)) {
        let desk = Desk::new();
        let keys: Vec<_> = (0..5).map(|_| desk.logging_key()).collect();
        let number = |key: usize| keys[key].number();
        let mut attributes = Attributes::<str>::default();
        let mut model: Vec<(usize, usize)> = Vec::new();
        for call in calls {
            let mut expected = Vec::new();
            match call {
                Call::Set(key, value) => {
                    if let Some(at) = model.iter().position(|(known, _)| *known == key) {
                        expected.push(format!("delete {} {}", number(key), model.remove(at).1));
                    }
                    model.push((key, value));
                    attributes.set(&desk.object, &keys[key], Value(value)).unwrap();
                }
                Call::Delete(key) => {
                    if let Some(at) = model.iter().position(|(known, _)| *known == key) {
                        expected.push(format!("delete {} {}", number(key), model.remove(at).1));
                    }
                    attributes.delete(&desk.object, &keys[key]).unwrap();
                }
                Call::Copy => {
                    let copy = Attributes::default();
                    copy.copy_from(&attributes, &desk.object).unwrap();
                    expected.extend(model.iter().map(|(key, value)| format!("copy {} {value}", number(*key))));
                    model.retain(|(_, value)| value % 2 == 0);
                    model.iter_mut().for_each(|(_, value)| *value += 2);
                    attributes = copy;
                }
                Call::Clear => {
                    let deletions = model.drain(..).rev();
                    expected.extend(deletions.map(|(key, value)| format!("delete {} {value}", number(key))));
                    attributes.delete_all(&desk.object).unwrap();
                    prop_assert!(attributes.is_empty());
                }
            }
            prop_assert_eq!(desk.taken_log(), expected);
            for (index, key) in keys.iter().enumerate() {
                let expected = model.iter().find(|(known, _)| *known == index).map(|(_, value)| Value(*value));
                prop_assert_eq!(attributes.get(key.number()), expected);
            }
        }
    }
}

#[test]
fn a_refusing_delete_keeps_its_attribute_and_the_older_ones() {
    let desk = Desk::new();
    let refuses = Arc::new(AtomicBool::new(true));
    let asked = Arc::clone(&refuses);
    let refusing = desk.key_with_delete(move |_, _, _| match asked.load(Ordering::Relaxed) {
        true => Err(crate::Error::from_code(20_000, "refused")),
        false => Ok(()),
    });
    let (older, newer) = (desk.logging_key(), desk.logging_key());
    let attributes = Attributes::default();
    for (key, value) in [(&older, 1), (&refusing, 2), (&newer, 3)] {
        attributes.set(&desk.object, key, Value(value)).unwrap();
    }
    let code = |result: Result<()>| result.unwrap_err().code;
    assert_eq!(code(attributes.set(&desk.object, &refusing, Value(9))), Some(20_000));
    assert_eq!(code(attributes.delete(&desk.object, &refusing)), Some(20_000));
    assert_eq!(code(attributes.delete_all(&desk.object)), Some(20_000));
    let left = [&older, &refusing, &newer].map(|key| attributes.get(key.number()));
    assert_eq!(left, [Some(Value(1)), Some(Value(2)), None]);
    refuses.store(false, Ordering::Relaxed);
    attributes.delete_all(&desk.object).unwrap();
    assert_eq!(desk.taken_log(), [format!("delete {} 3", newer.number()), format!("delete {} 1", older.number())]);
}

#[test]
fn a_failing_copy_fails_the_whole() {
    let desk = Desk::new();
    let fails = CopyRule::Call(Box::new(|_: &Arc<str>, _, _| Err(crate::Error::from_code(3, "no"))));
    let number = desk.keys.create(fails, DeleteRule::Nothing).unwrap();
    let (before, failing) = (desk.logging_key(), desk.keys.find(number).unwrap());
    let (attributes, copy) = (Attributes::default(), Attributes::default());
    attributes.set(&desk.object, &before, Value(2)).unwrap();
    attributes.set(&desk.object, &failing, Value(1)).unwrap();
    assert_eq!(copy.copy_from(&attributes, &desk.object).unwrap_err().class, ErrorClass::Type);
    assert!(copy.is_empty());
    assert_eq!(attributes.get(failing.number()), Some(Value(1)));
}

#[test]
fn null_rules_do_nothing_and_duplicates_repeat_the_value() {
    let desk = Desk::new();
    let key = |copy| desk.keys.find(desk.keys.create(copy, DeleteRule::Nothing).unwrap()).unwrap();
    let (never, always) = (key(CopyRule::Never), key(CopyRule::Duplicate));
    let (attributes, copy) = (Attributes::default(), Attributes::default());
    attributes.set(&desk.object, &never, Value(1)).unwrap();
    attributes.set(&desk.object, &always, Value(2)).unwrap();
    copy.copy_from(&attributes, &desk.object).unwrap();
    assert_eq!((copy.get(never.number()), copy.get(always.number())), (None, Some(Value(2))));
}

#[test]
fn a_callback_may_change_the_list_it_comes_from() {
    let desk = Desk::new();
    let attributes = Arc::new(Attributes::<str>::default());
    let other = desk.logging_key();
    let (list, victim) = (Arc::clone(&attributes), Arc::clone(&other));
    let meddling = desk.key_with_delete(move |object, _, _| match list.get(victim.number()) {
        Some(_) => list.delete(object, &victim),
        None => list.set(object, &victim, Value(50)),
    });
    attributes.set(&desk.object, &other, Value(4)).unwrap();
    attributes.set(&desk.object, &meddling, Value(1)).unwrap();
    attributes.set(&desk.object, &meddling, Value(2)).unwrap();
    assert_eq!((attributes.get(other.number()), attributes.get(meddling.number())), (None, Some(Value(2))));
    attributes.delete_all(&desk.object).unwrap();
    assert!(attributes.is_empty());
    let number = other.number();
    assert_eq!(desk.taken_log(), [format!("delete {number} 4"), format!("delete {number} 50")]);
}

#[test]
fn a_freed_key_serves_its_last_attribute() {
    let desk = Desk::new();
    let key = desk.logging_key();
    let number = key.number();
    let attributes = Attributes::default();
    attributes.set(&desk.object, &key, Value(4)).unwrap();
    drop(key);
    desk.keys.free(number).unwrap();
    desk.keys.free(number).expect("something refers to it");
    assert_eq!(attributes.get(number), Some(Value(4)));
    attributes.delete_all(&desk.object).unwrap();
    assert_eq!(desk.taken_log(), [format!("delete {number} 4")]);
    assert_eq!(desk.keys.find(number).unwrap_err().class, ErrorClass::Keyval);
    assert_eq!(desk.keys.free(number).unwrap_err().class, ErrorClass::Keyval);
    assert_eq!(desk.keys.create(CopyRule::Never, DeleteRule::Nothing).unwrap(), number + 1);
}
