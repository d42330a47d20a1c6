//! The contents of the notices: the open transactions, and those that ended against their users'
//! wishes.

use atomdir_format::notice::{EndedNotice, Notice, OpenNotice};
use std::collections::{BTreeMap, VecDeque};

/// How many ended transactions are remembered of one user, and of all.
const USER_ENDED_MAX: usize = 64;
const ENDED_MAX: usize = 1024;
/// For how long they are remembered.
const AGE_SECONDS_MAX: i64 = 30 * 24 * 60 * 60;

#[derive(Default)]
pub(super) struct List {
    open: BTreeMap<u64, Open>,
    /// The newest is last.
    ended: VecDeque<EndedNotice>,
}

struct Open {
    notice: OpenNotice,
    /// Commits of it up to this one have landed parts of it.
    parts_up_to: Option<u64>,
}

impl List {
    pub(super) fn apply(&mut self, notice: Notice) {
        match notice {
            Notice::Open(notice) => {
                let open = Open {
                    notice,
                    parts_up_to: None,
                };
                self.open.insert(open.notice.transaction, open);
            }
            Notice::Parts { transaction, up_to } => {
                if let Some(open) = self.open.get_mut(&transaction) {
                    open.parts_up_to = Some(up_to);
                }
            }
            Notice::Done { transaction } => {
                self.open.remove(&transaction);
            }
            Notice::Ended(notice) => {
                self.open.remove(&notice.open.transaction);
                self.add(notice);
            }
            Notice::Reported {
                transaction,
                reported,
            } => {
                let mut ended = self.ended.iter_mut();
                if let Some(one) = ended.find(|one| one.open.transaction == transaction) {
                    one.reported = reported;
                }
            }
        }
    }

    /// A user who has many transactions ended displaces only their own.
    fn add(&mut self, notice: EndedNotice) {
        let (user, now) = (notice.open.user, notice.ended.seconds);
        self.ended
            .retain(|one| one.ended.seconds >= now.saturating_sub(AGE_SECONDS_MAX));
        if self.count_of(user) >= USER_ENDED_MAX {
            self.drop_oldest_of(user);
        } else if self.ended.len() >= ENDED_MAX {
            let users = self.ended.iter().map(|one| one.open.user);
            if let Some(most) = users.max_by_key(|user| self.count_of(*user)) {
                self.drop_oldest_of(most);
            }
        }
        assert!(self.ended.len() < ENDED_MAX, "the list of notices grows");
        self.ended.push_back(notice);
    }

    fn count_of(&self, user: u32) -> usize {
        let own = self.ended.iter().filter(|one| one.open.user == user);
        own.count()
    }

    fn drop_oldest_of(&mut self, user: u32) {
        let oldest = self.ended.iter().position(|one| one.open.user == user);
        oldest.map(|oldest| self.ended.remove(oldest));
    }

    pub(super) fn ended(&self) -> impl Iterator<Item = &EndedNotice> {
        self.ended.iter()
    }

    /// The open transactions. Only a commit above the number is the end of one.
    pub(super) fn open(&self) -> impl Iterator<Item = (&OpenNotice, u64)> {
        let open = self.open.values();
        open.map(|open| (&open.notice, open.parts_up_to.unwrap_or(0)))
    }

    pub(super) fn is_open(&self, transaction: u64) -> bool {
        self.open.contains_key(&transaction)
    }

    pub(super) fn user_of_open(&self, transaction: u64) -> Option<u32> {
        let open = self.open.get(&transaction);
        open.map(|open| open.notice.user)
    }

    pub(super) fn has_parts(&self, transaction: u64) -> bool {
        let open = self.open.get(&transaction);
        open.is_some_and(|open| open.parts_up_to.is_some())
    }

    /// Notices that make up this list.
    pub(super) fn notices(&self) -> impl Iterator<Item = Notice> {
        let open = self.open.values().flat_map(|open| {
            let transaction = open.notice.transaction;
            let parts = open
                .parts_up_to
                .map(|up_to| Notice::Parts { transaction, up_to });
            std::iter::once(Notice::Open(open.notice.clone())).chain(parts)
        });
        let ended = self.ended.iter().cloned().map(Notice::Ended);
        open.chain(ended)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use atomdir_disk::Timestamp;
    use atomdir_format::notice::Reported;
    use atomdir_protocol::EndedHow;

    fn ended(transaction: u64, user: u32, seconds: i64) -> Notice {
        let time = Timestamp {
            seconds,
            nanoseconds: 0,
        };
        Notice::Ended(EndedNotice {
            open: OpenNotice {
                transaction,
                user,
                began: time,
                label: Vec::new(),
            },
            ended: time,
            how: EndedHow::Died,
            changes: None,
            reported: Reported::default(),
        })
    }

    fn ids(list: &List, user: u32) -> Vec<u64> {
        let own = list.ended().filter(|one| one.open.user == user);
        own.map(|one| one.open.transaction).collect()
    }

    #[test]
    fn nobody_fills_the_list_for_others() {
        let mut list = List::default();
        list.apply(ended(1, 7, 0));
        for id in 2..1000 {
            list.apply(ended(id, 8, 0));
        }
        assert_eq!(ids(&list, 7), [1]);
        assert_eq!(ids(&list, 8), (936..1000).collect::<Vec<u64>>());
        for id in 1000..1_000_000_u64 {
            if id % 997 == 0 {
                list.apply(ended(id, 100 + (id % 900) as u32, 0));
            }
        }
        assert!(list.ended().count() <= ENDED_MAX);
        assert_eq!(ids(&list, 7), [1], "others take from those who have most");
        list.apply(ended(5_000_000, 9, AGE_SECONDS_MAX + 1));
        assert_eq!(list.ended().count(), 1, "the others are too old");
    }

    #[test]
    fn list_is_made_again_from_its_notices() {
        let mut list = List::default();
        for notice in [ended(3, 7, 0), ended(4, 8, 0)] {
            list.apply(notice);
        }
        let Notice::Ended(EndedNotice { open, .. }) = ended(5, 7, 0) else {
            unreachable!("it is one");
        };
        let reported = Reported {
            user: true,
            administrator: false,
        };
        list.apply(Notice::Open(open));
        list.apply(Notice::Parts {
            transaction: 5,
            up_to: 9,
        });
        list.apply(Notice::Reported {
            transaction: 4,
            reported,
        });
        let mut again = List::default();
        for notice in list.notices() {
            again.apply(notice);
        }
        assert!(again.notices().eq(list.notices()));
        assert_eq!(
            again.open().map(|(_, up_to)| up_to).collect::<Vec<_>>(),
            [9]
        );
        assert_eq!(
            again
                .ended()
                .map(|one| one.reported.user)
                .collect::<Vec<_>>(),
            [false, true]
        );
        again.apply(Notice::Done { transaction: 5 });
        assert!(!again.is_open(5));
    }
}
