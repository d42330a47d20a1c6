/*
 * atomdir.h - ACID transactions over the files of a directory
 *
 *     atomdir_store *store;
 *     atomdir_tx *tx;
 *
 *     if (atomdir_open("/srv/data", 0, &store) < 0 ||
 *         atomdir_begin(store, 0, "example", &tx) < 0)
 *         errx(1, "%s", atomdir_message());
 *     if (atomdir_write_file(tx, "conf/a", "1\n", 2) < 0 ||
 *         atomdir_rename(tx, "state.new", "state", 0) < 0 ||
 *         atomdir_commit(tx, NULL) < 0) {
 *         warnx("%s", atomdir_message());
 *         atomdir_abort(tx);
 *     }
 *     atomdir_close(store);
 *
 * After a kill, a crash or a power cut the directory has all changes of a commit or none. Nobody
 * sees them before the commit. A commit fails if somebody else has changed the same things.
 *
 * RESULTS. Functions return 0 or a count, and a negative number if they fail: -ENOENT and so on
 * for what a system call would report, or one of the codes below. atomdir_message() then says in
 * words what happened. errno is not used.
 *
 * PATHS are relative to the store's root. A path that leaves it fails with -EXDEV.
 *
 * THREADS. Several threads may use one store, and one transaction at the same time, and read and
 * write one file. A log, a directory or another list is for one thread at a
 * time. A function that frees a handle
 * must be the last to use it.
 *
 * FORK. Handles belong to the process that made them. In a forked child every call with one fails,
 * with ATOMDIR_EFORKED or -ESTALE, and changes nothing of the parent's. The child may free them,
 * and may open the store itself if it has a service.
 *
 * SIGNALS. A call that a signal interrupts goes on. No function may be called in a signal handler.
 * The library sets no handlers, sends no SIGPIPE, and blocks all signals in its own thread. It has
 * one for each store that is open in this process.
 *
 * DESCRIPTORS are all close-on-exec.
 */
#ifndef ATOMDIR_H
#define ATOMDIR_H

#include <stddef.h>
#include <stdint.h>
#include <sys/stat.h>
#include <sys/types.h>

#ifdef __cplusplus
extern "C" {
#endif

typedef struct atomdir_store atomdir_store;
typedef struct atomdir_tx atomdir_tx;
typedef struct atomdir_file atomdir_file;
typedef struct atomdir_dir atomdir_dir;
typedef struct atomdir_log atomdir_log;
typedef struct atomdir_changes atomdir_changes;
typedef struct atomdir_transactions atomdir_transactions;
typedef struct atomdir_ended atomdir_ended;
typedef struct atomdir_texts atomdir_texts;

/* ---- Errors ---- */

/* Others were in the way; the same work may succeed in a new transaction. */
#define ATOMDIR_ECONFLICT (-10001)
/* No store contains the path. */
#define ATOMDIR_ENOSTORE (-10002)
/* Another process has the store open in itself, and runs no service for it. */
#define ATOMDIR_EHELD (-10003)
/* The store is not trusted, or may not be opened by this user. */
#define ATOMDIR_EUNTRUSTED (-10004)
/* The store's service does not run, or cannot be reached any more. */
#define ATOMDIR_ESERVICE (-10005)
/* A flush has failed. The store takes no changes until it is opened anew. */
#define ATOMDIR_EPOISONED (-10006)
/* An obstacle keeps an earlier commit from the files. */
#define ATOMDIR_ESTALLED (-10007)
/* The transaction has ended. */
#define ATOMDIR_EENDED (-10008)
/* The handle is of the process of which this one is a fork. */
#define ATOMDIR_EFORKED (-10009)
/* Files or nested transactions are open in the transaction. */
#define ATOMDIR_EINUSE (-10010)
/* Anything else: see the message. */
#define ATOMDIR_EREFUSED (-10011)
/* A fault in the library. */
#define ATOMDIR_EINTERNAL (-10012)
/* There is no such commit, what it replaced is no longer kept, or there was nothing at a path. */
#define ATOMDIR_ENOTKEPT (-10013)
/* What is to be undone or restored was changed again since. Another try alone does not help. */
#define ATOMDIR_ECHANGED (-10014)

/* What the last call that failed in this thread reported, in words. Valid until the next call
 * that fails in this thread. Empty if none has. */
const char *atomdir_message(void);

/* The author of a change that is in conflict. */
#define ATOMDIR_BY_COMMIT 1  /* a commit */
#define ATOMDIR_BY_OPEN 2    /* a transaction that is still open */
#define ATOMDIR_BY_OUTSIDE 3 /* a program in no transaction */
#define ATOMDIR_BY_OUTER 4   /* the outer transaction of a nested one */

struct atomdir_conflict {
    const char *path;        /* relative to the store's root */
    const char *part;        /* which part of it was changed, in words */
    const char *description; /* all this in a sentence */
    int by;                  /* ATOMDIR_BY_... */
    uint64_t commit;         /* the commit's number, or 0 */
    uint64_t transaction;    /* the transaction's id, or 0 */
    struct timespec time;    /* when the commit was made, or zeros if that is not known */
};

/* The conflicts of the last call in this thread that failed, or that lists conflicts: their number,
 * and one of them. The strings are valid until the next such call in this thread. */
size_t atomdir_conflict_count(void);
int atomdir_conflict_at(size_t index, struct atomdir_conflict *conflict);

/* ---- Stores ---- */

/* The ways to a store. The default is its service if one runs, else this process. */
#define ATOMDIR_EMBEDDED 1 /* this process alone, until the store is closed */
#define ATOMDIR_SERVICE 2  /* the store's service */
#define ATOMDIR_START 4    /* the service, which the command atomdir of PATH starts if needed */

/* Makes a directory a store; again is harmless. The control directory is .atomdir in it, or
 * `control` if that is not NULL. */
int atomdir_init(const char *directory, const char *control);

/* Opens the store that contains the path. */
int atomdir_open(const char *path, int flags, atomdir_store **store);

/* Frees the handle, also if it fails. In this process, closing makes all commits durable and empties
 * the log, once all transactions have ended; with a service, it makes lazy commits durable. */
int atomdir_close(atomdir_store *store);

/* The store's root directory, until the handle is freed. */
const char *atomdir_root(const atomdir_store *store);

/* 1 if the store is open in this process, 0 if it is reached by its service. */
int atomdir_is_embedded(const atomdir_store *store);

/* Makes all lazy commits durable. */
int atomdir_sync(atomdir_store *store);

/* ---- Transactions ---- */

#define ATOMDIR_SERIALIZABLE 1 /* what was read is protected as well */
#define ATOMDIR_LAZY 2         /* the commit does not wait for the disk */
#define ATOMDIR_EARLY 4        /* a write fails at once if an open transaction has written there */
#define ATOMDIR_OWN_READS 8    /* with ATOMDIR_SERIALIZABLE, if files are read by this library only:
                                  the pages that were read count, through a service, too */

/* Begins a transaction. `label` is its name in the log, or NULL. */
int atomdir_begin(atomdir_store *store, int flags, const char *label, atomdir_tx **tx);

/* Begins a transaction within another, which cannot be used before this one has ended. */
int atomdir_nest(atomdir_tx *outer, atomdir_tx **tx);

/* Commits. If it succeeds, the handle is freed, and `sequence`, if not NULL, is the commit's
 * place in the order, or 0 if nothing had changed. If it fails, the handle and the transaction's
 * changes stay, for atomdir_abort. Files must be closed before: else ATOMDIR_EINUSE. */
int atomdir_commit(atomdir_tx *tx, uint64_t *sequence);

/* Leaves the transaction open, for atomdir_attach or the command, makes what was written in it durable,
 * and frees the handle. `id`, if not NULL, is the transaction's id. It survives the end of the program,
 * of the service and of the machine. Files must be closed before. Needs a service. */
int atomdir_keep(atomdir_tx *tx, uint64_t *id);

/* Goes on with an open transaction of this user. atomdir_keep leaves it open again, and so does the end
 * of the program; atomdir_abort drops its changes. Needs a service. */
int atomdir_attach(atomdir_store *store, uint64_t id, atomdir_tx **tx);

/* Makes what was written so far durable, in a transaction that survives its service: one to which this
 * program has attached. Another one ends with this program, so this fails. */
int atomdir_tx_sync(atomdir_tx *tx);

/* Lists the open transactions of this user, for root those of all users; oldest first. Needs a
 * service. */
struct atomdir_transaction_info {
    uint64_t id;       /* for atomdir_attach */
    uid_t user;        /* whose it is */
    const char *label; /* valid until the list is closed */
    struct timespec began;
    int survives;          /* 1 if it survives the death of the service and of the machine */
    uint64_t kept_commits; /* how many commits the history keeps for it, whatever its limits are */
};

int atomdir_transactions_open(atomdir_store *store, atomdir_transactions **list);
/* 1 and the next transaction, or 0 at the end. */
int atomdir_transactions_next(atomdir_transactions *list, struct atomdir_transaction_info *found);
void atomdir_transactions_close(atomdir_transactions *list);

/* Lists the transactions of this user, for the store's owner and root those of all users, that ended
 * otherwise than their users wanted; oldest first. Needs a service. */
#define ATOMDIR_ENDED_ABORTED 1 /* another user aborted it */
#define ATOMDIR_ENDED_AGE 2     /* it reached its maximum age */
#define ATOMDIR_ENDED_STOPPED 3 /* the service was stopped */
#define ATOMDIR_ENDED_DIED 4    /* the service was killed, or the machine went down */

struct atomdir_ended_info {
    uint64_t id;
    uid_t user;        /* whose it was */
    const char *label; /* perhaps cut; like the description, valid until the list is closed */
    struct timespec began;
    struct timespec ended;
    int how;                 /* ATOMDIR_ENDED_... */
    uid_t by;                /* who has aborted it or stopped the service; (uid_t)-1: no user did */
    const char *description; /* how it ended, in words */
    uint64_t changes;        /* about how many objects it had changed; UINT64_MAX: not known */
};

int atomdir_ended_open(atomdir_store *store, atomdir_ended **list);
/* 1 and the next transaction, or 0 at the end. */
int atomdir_ended_next(atomdir_ended *list, struct atomdir_ended_info *found);
void atomdir_ended_close(atomdir_ended *list);

/* Drops the changes and frees the handle. NULL is allowed. Files that are still open can only be
 * closed. */
void atomdir_abort(atomdir_tx *tx);

/* Runs `body` in a transaction, and commits if it returns 0. Runs it again, in a new transaction,
 * if it or the commit returned ATOMDIR_ECONFLICT, with growing pauses, at most 100 times. If it
 * returns anything else, aborts and returns that. `body` must not end the transaction. */
int atomdir_run(atomdir_store *store, int flags, const char *label,
                int (*body)(atomdir_tx *tx, void *argument), void *argument);

/* The number by which conflicts and commands name the transaction. */
uint64_t atomdir_id(const atomdir_tx *tx);

/* The directory that shows the transaction to any program, if the store has a service; else
 * NULL. Valid until the handle is freed. */
const char *atomdir_view(const atomdir_tx *tx);

/* A new descriptor of the view's root directory, for openat(2) and the like, which the caller
 * closes. -EOPNOTSUPP if the store has no service. */
int atomdir_view_directory(atomdir_tx *tx);

int atomdir_set_savepoint(atomdir_tx *tx, const char *name);

/* Restores the state at the savepoint. Files must be closed before: else ATOMDIR_EINUSE. */
int atomdir_roll_back(atomdir_tx *tx, const char *savepoint);

struct atomdir_change {
    char letter;          /* 'A' added, 'M' modified, 'D' deleted, 'R' renamed, 'T' another type */
    const char *path;     /* relative to the store's root; valid until the list is closed */
    const char *old_path; /* of what was renamed; else NULL */
};

/* Lists the changes that a commit would make, sorted by path. */
int atomdir_changes_open(atomdir_tx *tx, atomdir_changes **changes);
/* 1 and the next change, or 0 at the end. */
int atomdir_changes_next(atomdir_changes *changes, struct atomdir_change *change);
void atomdir_changes_close(atomdir_changes *changes);

/* Locks what is at a path until the transaction ends, and waits for others who hold locks on it:
 * for ever if `wait_ms` is negative. */
#define ATOMDIR_SHARED 1  /* others may hold shared locks too */
#define ATOMDIR_SUBTREE 2 /* everything below the path as well */
int atomdir_lock(atomdir_tx *tx, const char *path, int flags, int wait_ms);

/* Locks all of these paths or none. `paths` are strings and then NULL. */
int atomdir_lock_all(atomdir_tx *tx, const char *const *paths, int flags, int wait_ms);

/* ---- Parts, and sides in conflicts. `paths` are strings and then NULL. ---- */

/* Commits the changes at and below these paths, and what they need. The transaction stays open
 * with the rest. */
int atomdir_commit_part(atomdir_tx *tx, const char *const *paths, uint64_t *sequence);

/* Drops the changes at and below these paths, and what needs them. The transaction stays open with
 * the rest. Files must be closed before: else ATOMDIR_EINUSE. */
int atomdir_abort_part(atomdir_tx *tx, const char *const *paths);

/* Gives the transaction a newer snapshot: from now on it sees what others have committed, under its
 * own changes. `to`, if not NULL, is the newest commit in it. ATOMDIR_ECONFLICT if others have
 * changed the same; then nothing has happened. Drops all savepoints. Files must be closed before:
 * else ATOMDIR_EINUSE. */
int atomdir_refresh(atomdir_tx *tx, uint64_t *to);

/* Lists the conflicts that keep the transaction from being committed now, for atomdir_conflict_at,
 * and returns their number. Drops all savepoints. */
ssize_t atomdir_list_conflicts(atomdir_tx *tx);

/* Commits like atomdir_commit, and takes a side in each conflict that was listed last, in that
 * order. ATOMDIR_ECONFLICT if there are others, or others have changed something there since. */
#define ATOMDIR_MINE 1   /* this transaction's changes replace what others have changed */
#define ATOMDIR_THEIRS 2 /* this transaction's changes there are not committed */
/* Both changes of a text are kept: it is merged line by line. ATOMDIR_ECONFLICT, and nothing has
 * changed, if both have changed the same lines or it is no text; the descriptions of
 * atomdir_conflict_at say which it is. If the commit is refused after that, the texts are merged in the
 * transaction. */
#define ATOMDIR_MERGE 3
int atomdir_commit_with_sides(atomdir_tx *tx, const int *sides, size_t count,
                              uint64_t *sequence);

/* The versions of a text in a conflict, by its place in the list that was made last. ATOMDIR_EREFUSED
 * if it is not about a text: see the message. */
int atomdir_texts_open(atomdir_tx *tx, size_t index, atomdir_texts **texts);
/* One of them, until they are closed. 1 if both sides have changed the same lines, so that the merged
 * text has both between markers; else 0. */
#define ATOMDIR_TEXT_ANCESTOR 1 /* the snapshot's; empty if it has no such file */
#define ATOMDIR_TEXT_MINE 2     /* this transaction's */
#define ATOMDIR_TEXT_THEIRS 3   /* what others have made of it */
#define ATOMDIR_TEXT_MERGED 4   /* with the changes of both */
int atomdir_texts_get(const atomdir_texts *texts, int version, const void **data, size_t *size);
void atomdir_texts_close(atomdir_texts *texts);

/* ---- The past. For the store's owner and root; every user can list commits, and show their own.
 * ---- */

struct atomdir_commit_info {
    uint64_t sequence;    /* its place in the commit order, which names it */
    uint64_t transaction; /* the id of its transaction */
    struct timespec time;
    uid_t user;        /* whose transaction it was */
    const char *label; /* valid until the log is closed */
    uint64_t changes;  /* how many paths it changed */
};

/* Lists the last commits, newest first, at most `limit` of them. */
int atomdir_log_open(atomdir_store *store, size_t limit, atomdir_log **log);
/* The same of those that changed something at or below these paths: strings and then NULL; with
 * NULL itself, of all. Only those older than commit `before`, unless it is 0. */
int atomdir_log_of(atomdir_store *store, const char *const *paths, uint64_t before, size_t limit,
                   atomdir_log **log);
/* 1 and the next commit, or 0 at the end. */
int atomdir_log_next(atomdir_log *log, struct atomdir_commit_info *commit);
void atomdir_log_close(atomdir_log *log);

/* Lists what a commit changed, sorted by path. `info`, if not NULL, is as in the log; its label is
 * valid until the list is closed. */
int atomdir_show(atomdir_store *store, uint64_t commit, struct atomdir_commit_info *info,
                 atomdir_changes **changes);

/* Lists what differs between the store as it was just after two commits, or just after one and now,
 * sorted by path; renames are a removal and an addition. What programs in no transaction have
 * changed as well is compared as it is now, and listed for atomdir_conflict_at. */
#define ATOMDIR_NOW UINT64_MAX
int atomdir_diff(atomdir_store *store, uint64_t from, uint64_t to, atomdir_changes **changes);

/* The newest commit at or before a time; before all of them, the one before the first in the log. */
int atomdir_commit_at(atomdir_store *store, const struct timespec *time, uint64_t *commit);

/* Begins a transaction that takes back what these commits changed, and nothing else: with `paths`
 * not NULL, only at and below these. ATOMDIR_ECHANGED if that was changed again since. */
int atomdir_undo(atomdir_store *store, const uint64_t *commits, size_t count,
                 const char *const *paths, atomdir_tx **tx);

/* Begins a transaction in which everything at and below these paths is as it was just after a
 * commit; after commit 0, as it was before the first one. */
int atomdir_restore(atomdir_store *store, uint64_t commit, const char *const *paths,
                    atomdir_tx **tx);

/* Begins a transaction that shows the store as it was just after a commit. Nothing can be changed
 * in it, and it can only be aborted. ATOMDIR_ECHANGED if programs in no transaction have changed
 * what commits changed; with ATOMDIR_OUTSIDE_AS_NOW that is shown as it is now, and listed for
 * atomdir_conflict_at. */
#define ATOMDIR_OUTSIDE_AS_NOW 1
int atomdir_at(atomdir_store *store, uint64_t commit, int flags, atomdir_tx **tx);

/* Forgets what is kept of commits older than this, or, if the age is negative, than the store's
 * settings say; 0: of all. Forgotten commits are still listed, and cannot be undone. Returns 1 and,
 * if `kept` is not NULL, what is kept now; or 0 if the settings say that nothing is. */
struct atomdir_history {
    uint64_t commits; /* how many commits can be undone */
    uint64_t bytes;   /* the space that this takes */
    uint64_t oldest;  /* the oldest of them, or 0 */
    struct timespec oldest_time;
};
int atomdir_prune(atomdir_store *store, int64_t age_seconds, struct atomdir_history *kept);

/* ---- Settings, for the store's owner and root: "allow", "view", "history-age" and
 * "history-space", with values as for the command `atomdir config` ---- */

/* The length of the value, and the value with a byte 0, if it fits: else -ERANGE. With size 0, only
 * the length. */
ssize_t atomdir_setting(atomdir_store *store, const char *key, char *value, size_t size);

/* Changes a setting. An empty value restores the default. */
int atomdir_set_setting(atomdir_store *store, const char *key, const char *value);

/* ---- Whole files ---- */

/* Reads a file into memory that atomdir_free frees. A byte 0 follows, which `size` leaves out. */
int atomdir_read_file(atomdir_tx *tx, const char *path, void **data, size_t *size);
void atomdir_free(void *data);

/* Creates a file, or replaces the contents of one, which keeps its owner, mode and names. */
int atomdir_write_file(atomdir_tx *tx, const char *path, const void *data, size_t size);

/* ---- Open files ---- */

/* As openat(2): O_RDONLY, O_WRONLY, O_RDWR, O_APPEND, O_CREAT, O_EXCL, O_TRUNC, O_NOFOLLOW. */
int atomdir_file_open(atomdir_tx *tx, const char *path, int flags, mode_t mode,
                      atomdir_file **file);
/* Frees the handle. */
int atomdir_file_close(atomdir_file *file);
/* Reads less than `size` only at the end of the file. */
ssize_t atomdir_pread(atomdir_file *file, void *data, size_t size, uint64_t offset);
/* Writes all of the data. */
ssize_t atomdir_pwrite(atomdir_file *file, const void *data, size_t size, uint64_t offset);
/* Writes all of the data at the end of a file that was opened with O_APPEND. */
ssize_t atomdir_append(atomdir_file *file, const void *data, size_t size);
int atomdir_ftruncate(atomdir_file *file, uint64_t length);
int atomdir_fstat(atomdir_file *file, struct stat *stat);

/* ---- Names ---- */

int atomdir_mkdir(atomdir_tx *tx, const char *path, mode_t mode);
int atomdir_rmdir(atomdir_tx *tx, const char *path);
int atomdir_unlink(atomdir_tx *tx, const char *path);
/* Removes a file, or a directory with everything in it. */
int atomdir_remove_all(atomdir_tx *tx, const char *path);
/* `flags` is 0, ATOMDIR_NOREPLACE or ATOMDIR_EXCHANGE. */
#define ATOMDIR_NOREPLACE 1
#define ATOMDIR_EXCHANGE 2
int atomdir_rename(atomdir_tx *tx, const char *from, const char *to, int flags);
int atomdir_link(atomdir_tx *tx, const char *from, const char *to);
int atomdir_symlink(atomdir_tx *tx, const char *target, const char *path);
/* As readlink(2), but -ERANGE if the target and a byte 0 do not fit. */
ssize_t atomdir_readlink(atomdir_tx *tx, const char *path, char *target, size_t size);

struct atomdir_entry {
    const char *name; /* valid until the directory is closed */
    unsigned type;    /* S_IFREG, S_IFDIR, ... */
    uint64_t inode;
};

/* Lists a directory as it is at this moment, sorted by name, without "." and "..". */
int atomdir_dir_open(atomdir_tx *tx, const char *path, atomdir_dir **dir);
/* 1 and the next entry, or 0 at the end. */
int atomdir_dir_next(atomdir_dir *dir, struct atomdir_entry *entry);
void atomdir_dir_close(atomdir_dir *dir);

/* ---- Attributes. atomdir_stat and atomdir_chmod follow a symbolic link; the others do not. ---- */

int atomdir_stat(atomdir_tx *tx, const char *path, struct stat *stat);
int atomdir_lstat(atomdir_tx *tx, const char *path, struct stat *stat);
int atomdir_chmod(atomdir_tx *tx, const char *path, mode_t mode);
/* (uid_t) -1 and (gid_t) -1 leave the owner and the group. */
int atomdir_chown(atomdir_tx *tx, const char *path, uid_t user, gid_t group);
/* The times of access and modification, as in utimensat(2), UTIME_OMIT and UTIME_NOW too. */
int atomdir_utimens(atomdir_tx *tx, const char *path, const struct timespec times[2]);
/* As getxattr(2) and listxattr(2): with `size` 0 the length. */
ssize_t atomdir_getxattr(atomdir_tx *tx, const char *path, const char *name, void *value,
                         size_t size);
ssize_t atomdir_listxattr(atomdir_tx *tx, const char *path, char *names, size_t size);
int atomdir_setxattr(atomdir_tx *tx, const char *path, const char *name, const void *value,
                     size_t size);
int atomdir_removexattr(atomdir_tx *tx, const char *path, const char *name);

/* ---- Three calls around existing code ----
 *
 * Between atomdir_begin_here and atomdir_commit_here, ordinary system calls of this thread on
 * ordinary paths below the store's root are in a transaction: open, write, rename, unlink, stat,
 * also those of libraries that this thread calls, and of processes and threads that it starts.
 *
 * The calling thread gets a mount namespace of its own, in which the transaction's view is mounted
 * over the store, and leaves it at the end. So this covers exactly what is resolved by a path
 * meanwhile:
 *
 *   in:      files opened by this thread after begin_here, by absolute paths or relative to the
 *            working directory; their descriptors stay in when passed on
 *   not in:  files and directories that were opened before, and what is opened relative to them;
 *            other threads; paths that reach the store's directory through another mount of its
 *            file system; everything outside the store
 *
 * Close what you opened before the end: afterwards it is of a transaction that has ended, and
 * each call fails. A thread or process that was started meanwhile and still runs keeps seeing the
 * dead view.
 *
 * From the first begin_here on, this thread has a working directory, root and umask of its own,
 * which it no longer shares with the other threads (unshare(2), CLONE_FS).
 *
 * It needs CAP_SYS_ADMIN and CAP_SYS_CHROOT: root has them, or a process in user and mount
 * namespaces that were made for it, as by `unshare -rm`. Without them, begin_here returns -EPERM and changes
 * nothing; such a program uses atomdir_begin and atomdir_view, or is run by `atomdir run`. The
 * store must have a service; the command atomdir of PATH starts one if needed. A second begin_here
 * in the same thread returns -EALREADY, and in a forked child -EBUSY.
 */
int atomdir_begin_here(const char *path);

/* Leaves the view and commits. If the thread cannot leave (it has given up its privileges), fails
 * with -EPERM and commits nothing. If the commit fails, the transaction is aborted. */
int atomdir_commit_here(void);

/* Leaves the view and drops the changes. */
int atomdir_abort_here(void);

#ifdef __cplusplus
}
#endif

#endif
