/*
 * atomdir.h - ACID transactions over the files of a directory
 *
 *     atomdir_store *store;
 *     atomdir_tx *tx;
 *
 *     if (atomdir_init("/srv/data", NULL) < 0 ||
 *         atomdir_open("/srv/data", 0, &store) < 0 ||
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
 * After a kill, a crash or a power cut the directory has all changes of a commit or none. No other
 * program sees them before the commit. A commit fails if others have changed the same things.
 *
 * RESULTS. Functions return 0 or a count, and a negative number if they fail: -ENOENT and so on
 * for an error of a system call, or one of the codes below. atomdir_message() then describes the
 * error. errno is not used. A function ..._next returns 1 and the next item of a list, or 0 at its end.
 *
 * PATHS are relative to the store's root. A path that leaves it fails with -EXDEV.
 *
 * THREADS. Several threads may use a store, a transaction or a file at the same time. Only one
 * thread at a time may use a log, a directory or another list. A function that frees a handle must
 * be the last to use it.
 *
 * FORK. Handles belong to the process that made them. In a forked child every call with such a
 * handle fails with ATOMDIR_EFORKED or -ESTALE, and does not affect the parent. The child may free
 * them, and may open the store itself if it has a service.
 *
 * SIGNALS. A call that a signal interrupts continues. No function may be called in a signal
 * handler. The library sets no handlers and causes no SIGPIPE. It runs two threads for each store
 * that is open in this process, in which all signals are blocked.
 *
 * DESCRIPTORS of the library are close-on-exec.
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
/* A conflict with others. The same work may succeed in a new transaction. */
#define ATOMDIR_ECONFLICT (-10001)
#define ATOMDIR_ENOSTORE (-10002) /* no store contains the path */
/* Another process has opened the store in its own process, without a service. */
#define ATOMDIR_EHELD (-10003)
#define ATOMDIR_EUNTRUSTED (-10004) /* the store is not trusted, or may not be opened by this user */
/* The store's service does not run, or cannot be reached any more. */
#define ATOMDIR_ESERVICE (-10005)
/* A flush has failed. The store refuses changes until it is opened again. */
#define ATOMDIR_EPOISONED (-10006)
/* An earlier commit cannot be applied to the files: see the message. */
#define ATOMDIR_ESTALLED (-10007)
#define ATOMDIR_EENDED (-10008) /* the transaction has ended */
/* The handle belongs to the process from which this one was forked. */
#define ATOMDIR_EFORKED (-10009)
#define ATOMDIR_EINUSE (-10010) /* files or nested transactions are open in the transaction */
#define ATOMDIR_EREFUSED (-10011) /* anything else: see the message */
#define ATOMDIR_EINTERNAL (-10012) /* a bug in the library */
/* There is no such commit, its history is no longer kept, or there was nothing at a path. */
#define ATOMDIR_ENOTKEPT (-10013)
/* The changes to undo, restore or show were overwritten since. Trying again does not help. */
#define ATOMDIR_ECHANGED (-10014)

/* A description of this thread's last error. Valid until the next call that fails in this thread.
 * Empty if none has failed. */
const char *atomdir_message(void);

/* The author of a change that is in conflict. */
#define ATOMDIR_BY_COMMIT 1  /* a commit */
#define ATOMDIR_BY_OPEN 2    /* a transaction that is still open */
#define ATOMDIR_BY_OUTSIDE 3 /* a program in no transaction */
#define ATOMDIR_BY_OUTER 4   /* the outer transaction of a nested one */

struct atomdir_conflict {
    const char *path;        /* relative to the store's root */
    const char *part;        /* the part of it that was changed, in words */
    const char *description; /* a sentence that describes the conflict */
    int by;                  /* ATOMDIR_BY_... */
    uint64_t commit;         /* the commit's number, or 0 */
    uint64_t transaction;    /* the transaction's id, or 0 */
    struct timespec time;    /* when the commit was made, or zeros if it is unknown */
};

/* The conflicts of this thread's last call that failed or listed conflicts: their number, and one
 * of them. The strings are valid until the next such call in this thread. */
size_t atomdir_conflict_count(void);
int atomdir_conflict_at(size_t index, struct atomdir_conflict *conflict);

/* ---- Stores ---- */
/* How to open a store. With 0, through its service if one runs, otherwise in this process until
 * another process wants the store and no transaction or file of it is open here. */
#define ATOMDIR_EMBEDDED 1 /* in this process, which keeps it until it is closed or handed over */
#define ATOMDIR_SERVICE 2  /* through the store's service */
#define ATOMDIR_START 4    /* the same; the command atomdir in PATH starts the service if needed */

/* Makes a directory a store. Does nothing if it is one. The control directory is .atomdir in it, or
 * `control` if that is not NULL. */
int atomdir_init(const char *directory, const char *control);

/* Opens the store that contains the path. */
int atomdir_open(const char *path, int flags, atomdir_store **store);

/* Frees the handle, also if it fails. A store in this process is closed when all its transactions
 * have ended: all commits become durable, and the log is emptied. With a service, lazy commits
 * become durable. */
int atomdir_close(atomdir_store *store);

/* The path of the store's root directory. Valid until the handle is freed. */
const char *atomdir_root(const atomdir_store *store);

/* 1 if the store is open in this process now, 0 if it is used through its service. */
int atomdir_is_embedded(const atomdir_store *store);

/* Gives up a store that is open in this process, so that others can open it. The next use opens it
 * again, as with 0. ATOMDIR_EINUSE while transactions or files of it are open. */
int atomdir_hand_over(atomdir_store *store);

/* Makes all lazy commits durable. */
int atomdir_sync(atomdir_store *store);

/* ---- Transactions ---- */
#define ATOMDIR_SERIALIZABLE 1 /* a commit also fails if others have changed what was read */
#define ATOMDIR_LAZY 2         /* the commit does not wait for the disk */
#define ATOMDIR_EARLY 4        /* a write fails at once if an open transaction has written there */
#define ATOMDIR_OWN_READS 8    /* with ATOMDIR_SERIALIZABLE, if only this library reads the files, not
                                  in the view: with a service, too, single pages count as read */
#define ATOMDIR_DEFERRED 16    /* the commit is durable, and in the directory up to 100 ms later */

/* Begins a transaction. `label` is its name in the log, or NULL. */
int atomdir_begin(atomdir_store *store, int flags, const char *label, atomdir_tx **tx);

/* Has the transaction's commits take themselves back after this time, also after a crash, unless
 * atomdir_confirm comes first. Negative: they stay, as by default. -EINVAL if it is 0. ATOMDIR_EREFUSED
 * if the transaction is nested, the store keeps no history, or the user is neither its owner nor root. */
int atomdir_confirm_within(atomdir_tx *tx, int64_t wait_ms);

/* Begins a transaction within another one, which cannot be used until the inner one has ended. */
int atomdir_nest(atomdir_tx *outer, atomdir_tx **tx);

/* Begins a second transaction from the present state of one, with its isolation and durability. From
 * then on the two are independent. Where both have changed the same in different ways, the first to
 * commit wins. One with ATOMDIR_EARLY cannot be forked. */
int atomdir_fork(atomdir_tx *tx, atomdir_tx **fork);

/* Commits. If it succeeds, the handle is freed, and `sequence`, if not NULL, is the commit's
 * place in the order, or 0 if nothing had changed. If it fails, the transaction stays open, and
 * atomdir_abort must end it. ATOMDIR_EINUSE if files are open in it. */
int atomdir_commit(atomdir_tx *tx, uint64_t *sequence);

/* Detaches from the transaction, which stays open for atomdir_attach or the command. Makes its changes
 * durable, and frees the handle. `id`, if not NULL, is the transaction's id. The transaction survives
 * the end of the program, of the service and of the machine. No file may be open in it. Needs a
 * service. */
int atomdir_keep(atomdir_tx *tx, uint64_t *id);

/* Attaches to an open transaction of this user. It stays open after atomdir_keep, and if the program
 * ends; atomdir_abort drops its changes. Needs a service. */
int atomdir_attach(atomdir_store *store, uint64_t id, atomdir_tx **tx);

/* Makes the transaction's changes so far durable. Works only after atomdir_attach: any other transaction
 * ends with this program, so this fails. */
int atomdir_tx_sync(atomdir_tx *tx);

/* Lists the open transactions of this user (for root: of all users), oldest first. Needs a service. */
struct atomdir_transaction_info {
    uint64_t id;       /* for atomdir_attach */
    uid_t user;        /* its owner */
    const char *label; /* valid until the list is closed */
    struct timespec began;
    int survives;          /* 1 if it survives the death of the service and of the machine */
    uint64_t kept_commits; /* how many commits the history keeps for it, whatever its limits are */
};

int atomdir_transactions_open(atomdir_store *store, atomdir_transactions **list);
int atomdir_transactions_next(atomdir_transactions *list, struct atomdir_transaction_info *found);
void atomdir_transactions_close(atomdir_transactions *list);

/* Lists the transactions of this user (for the store's owner and root: of all users) that were ended
 * without a request of their users, oldest first. Needs a service. */
#define ATOMDIR_ENDED_ABORTED 1 /* another user aborted it */
#define ATOMDIR_ENDED_AGE 2     /* it reached its maximum age */
#define ATOMDIR_ENDED_STOPPED 3 /* the service was stopped */
#define ATOMDIR_ENDED_DIED 4    /* the service was killed, or the machine went down */

struct atomdir_ended_info {
    uint64_t id;
    uid_t user;        /* its owner */
    const char *label; /* may be shortened; like the description, valid until the list is closed */
    struct timespec began;
    struct timespec ended;
    int how;                 /* ATOMDIR_ENDED_... */
    uid_t by;                /* the user who aborted it or stopped the service, or (uid_t)-1 */
    const char *description; /* how it ended, in words */
    uint64_t changes;        /* about how many objects it had changed; UINT64_MAX if unknown */
};

int atomdir_ended_open(atomdir_store *store, atomdir_ended **list);
int atomdir_ended_next(atomdir_ended *list, struct atomdir_ended_info *found);
void atomdir_ended_close(atomdir_ended *list);

/* Drops the changes and frees the handle. NULL is allowed. Files that are still open can then only
 * be closed. */
void atomdir_abort(atomdir_tx *tx);

/* Runs `body` in a transaction, and commits if it returns 0. Runs it again, in a new transaction,
 * if it or the commit returned ATOMDIR_ECONFLICT, with growing pauses, at most 100 times. If it
 * returns anything else, aborts and returns that. `body` must not end the transaction. */
int atomdir_run(atomdir_store *store, int flags, const char *label,
                int (*body)(atomdir_tx *tx, void *argument), void *argument);

/* The number by which conflicts and commands name the transaction. */
uint64_t atomdir_id(const atomdir_tx *tx);

/* The path of the transaction's view, which any program can use; NULL if the store has no service.
 * Valid until the handle is freed. */
const char *atomdir_view(const atomdir_tx *tx);

/* A new descriptor of the view's root directory, for openat(2) and the like. The caller must close
 * it. -EOPNOTSUPP if the store has no service. */
int atomdir_view_directory(atomdir_tx *tx);

int atomdir_set_savepoint(atomdir_tx *tx, const char *name);

/* Restores the state at the savepoint. ATOMDIR_EINUSE if files are open in the transaction. */
int atomdir_roll_back(atomdir_tx *tx, const char *savepoint);

struct atomdir_change {
    char letter;          /* 'A' added, 'M' modified, 'D' deleted, 'R' renamed, 'T' another type */
    const char *path;     /* relative to the store's root; valid until the list is closed */
    const char *old_path; /* the path before a rename, or NULL */
};

/* Lists the changes that a commit would make, sorted by path. */
int atomdir_changes_open(atomdir_tx *tx, atomdir_changes **changes);
int atomdir_changes_next(atomdir_changes *changes, struct atomdir_change *change);
void atomdir_changes_close(atomdir_changes *changes);

/* Locks the object at a path until the transaction ends. Waits at most `wait_ms` while others hold
 * locks on it; without limit if that is negative. */
#define ATOMDIR_SHARED 1  /* others may hold shared locks, too */
#define ATOMDIR_SUBTREE 2 /* locks everything below the path as well */
int atomdir_lock(atomdir_tx *tx, const char *path, int flags, int wait_ms);

/* Locks all of these paths or none. `paths` is an array of strings that ends with NULL. */
int atomdir_lock_all(atomdir_tx *tx, const char *const *paths, int flags, int wait_ms);

/* ---- Commits of parts, and sides in conflicts. `paths` is an array that ends with NULL. ---- */
/* Commits the changes at and below these paths, and the changes that they need. The transaction
 * stays open with the rest. */
int atomdir_commit_part(atomdir_tx *tx, const char *const *paths, uint64_t *sequence);

/* Drops the changes at and below these paths, and the changes that need them. The transaction stays
 * open with the rest. ATOMDIR_EINUSE if files are open in it. */
int atomdir_abort_part(atomdir_tx *tx, const char *const *paths);

/* Gives the transaction the newest snapshot: it then sees the commits of others, under its own
 * changes. `to`, if not NULL, is the newest commit in the snapshot. ATOMDIR_ECONFLICT, and nothing
 * has changed, if others have changed the same things. Drops all savepoints. ATOMDIR_EINUSE if
 * files are open in the transaction. */
int atomdir_refresh(atomdir_tx *tx, uint64_t *to);

/* Lists the conflicts with which a commit would fail now, for atomdir_conflict_at, and returns their
 * number. Drops all savepoints. */
ssize_t atomdir_list_conflicts(atomdir_tx *tx);

/* Commits like atomdir_commit. `sides` has one side for each conflict of the last list, in its order.
 * ATOMDIR_ECONFLICT if there are more conflicts, or others have changed these things again. */
#define ATOMDIR_MINE 1   /* this transaction's changes replace those of the others */
#define ATOMDIR_THEIRS 2 /* this transaction's changes there are not committed */
/* Merges a text line by line, which keeps the changes of both. ATOMDIR_ECONFLICT, and nothing has
 * changed, if both have changed the same lines or it is not a text; the descriptions of
 * atomdir_conflict_at say which. If the texts are merged and the commit is refused all the same, they
 * stay merged in the transaction. */
#define ATOMDIR_MERGE 3
int atomdir_commit_with_sides(atomdir_tx *tx, const int *sides, size_t count, uint64_t *sequence);

/* Opens the versions of a text in a conflict. `index` is the conflict's place in the last list.
 * ATOMDIR_EREFUSED if the conflict is not about a text: see the message. */
int atomdir_texts_open(atomdir_tx *tx, size_t index, atomdir_texts **texts);
/* One of the versions. The data is valid until they are closed. Returns 1 for a merged text in which
 * both sides have changed the same lines: it has both, between markers. Otherwise returns 0. */
#define ATOMDIR_TEXT_ANCESTOR 1 /* the snapshot's version; empty if it has no such file */
#define ATOMDIR_TEXT_MINE 2     /* this transaction's version */
#define ATOMDIR_TEXT_THEIRS 3   /* the version of the others */
#define ATOMDIR_TEXT_MERGED 4   /* the text with the changes of both */
int atomdir_texts_get(const atomdir_texts *texts, int version, const void **data, size_t *size);
void atomdir_texts_close(atomdir_texts *texts);

/* ---- The past. Only for the store's owner and root, but every user can list commits, and show and
 * relabel their own. ---- */

struct atomdir_commit_info {
    uint64_t sequence;    /* its number: its place in the commit order */
    uint64_t transaction; /* the id of its transaction */
    struct timespec time;
    uid_t user;        /* the transaction's owner */
    const char *label; /* valid until the log is closed */
    uint64_t changes;  /* how many paths it changed */
};

/* Lists the last commits, newest first, at most `limit` of them. */
int atomdir_log_open(atomdir_store *store, size_t limit, atomdir_log **log);
/* The same, but only commits that changed something at or below these paths (an array that ends with
 * NULL, or NULL for all paths), and that are older than commit `before`, unless that is 0. */
int atomdir_log_of(atomdir_store *store, const char *const *paths, uint64_t before, size_t limit,
                   atomdir_log **log);
int atomdir_log_next(atomdir_log *log, struct atomdir_commit_info *commit);
void atomdir_log_close(atomdir_log *log);

/* Lists the changes of a commit, sorted by path. `info`, if not NULL, is as in the log; its label is
 * valid until the list is closed. */
int atomdir_show(atomdir_store *store, uint64_t commit, struct atomdir_commit_info *info,
                 atomdir_changes **changes);

/* Lists the differences between the states of the store just after two commits, or just after one
 * and now, sorted by path. A rename is a removal and an addition. Objects that outside writers have
 * changed as well are compared as they are now, and listed for atomdir_conflict_at. */
#define ATOMDIR_NOW UINT64_MAX
int atomdir_diff(atomdir_store *store, uint64_t from, uint64_t to, atomdir_changes **changes);

/* The newest commit at or before a time. If the time is before all commits that can be listed, the
 * number of the commit before the first of these. */
int atomdir_commit_at(atomdir_store *store, const struct timespec *time, uint64_t *commit);

/* Begins a transaction that undoes the changes of these commits; if `paths` is not NULL, only those at
 * and below these paths. ATOMDIR_ECHANGED if later changes are in conflict with that. */
int atomdir_undo(atomdir_store *store, const uint64_t *commits, size_t count,
                 const char *const *paths, atomdir_tx **tx);

/* Begins a transaction in which everything at and below these paths is as it was just after a
 * commit; after commit 0, as it was before the first one. */
int atomdir_restore(atomdir_store *store, uint64_t commit, const char *const *paths,
                    atomdir_tx **tx);

/* Begins a read-only transaction that shows the store as it was just after a commit. It can only be
 * aborted. ATOMDIR_ECHANGED if outside writers have changed objects that later commits have changed;
 * with ATOMDIR_OUTSIDE_AS_NOW these are shown as they are now, and listed for atomdir_conflict_at. */
#define ATOMDIR_OUTSIDE_AS_NOW 1
int atomdir_at(atomdir_store *store, uint64_t commit, int flags, atomdir_tx **tx);

/* Drops the history of commits older than this; if the age is negative, older than the store's
 * settings allow; if it is 0, of all commits. These commits are still listed, but cannot be undone.
 * Returns 1 and the history that is left, if `kept` is not NULL; or 0 if the store keeps none. */
struct atomdir_history {
    uint64_t commits; /* how many commits can be undone */
    uint64_t bytes;   /* the space that the history takes */
    uint64_t oldest;  /* the oldest of these commits, or 0 */
    struct timespec oldest_time;
};
int atomdir_prune(atomdir_store *store, int64_t age_seconds, struct atomdir_history *kept);

/* Confirms a commit that would take itself back. ATOMDIR_ENOTKEPT if it does not wait for that. */
int atomdir_confirm(atomdir_store *store, uint64_t commit);

/* With 1, keeps a commit from being forgotten, whatever the history's limits are; with 0, no longer. */
int atomdir_pin(atomdir_store *store, uint64_t commit, int pinned);

/* Changes what the log says of a commit. */
int atomdir_relabel(atomdir_store *store, uint64_t commit, const char *label);

/* ---- Settings, for the store's owner and root: "allow", "view", "history-age" and
 * "history-space", with values as for the command `atomdir config` ---- */

/* Copies the value and a byte 0, and returns the length without the byte 0. -ERANGE if they do not
 * fit. With size 0, only returns the length. */
ssize_t atomdir_setting(atomdir_store *store, const char *key, char *value, size_t size);

/* Changes a setting. An empty value restores the default. */
int atomdir_set_setting(atomdir_store *store, const char *key, const char *value);

/* ---- Whole files ---- */
/* Reads a file into memory that atomdir_free frees. A byte 0 follows, which `size` does not count. */
int atomdir_read_file(atomdir_tx *tx, const char *path, void **data, size_t *size);
void atomdir_free(void *data);

/* Creates a file, or replaces the contents of an existing one, which keeps its owner, mode and names. */
int atomdir_write_file(atomdir_tx *tx, const char *path, const void *data, size_t size);

/* ---- Open files ---- */
/* Flags, as for openat(2): O_RDONLY, O_WRONLY, O_RDWR, O_APPEND, O_CREAT, O_EXCL, O_TRUNC,
 * O_NOFOLLOW. */
int atomdir_file_open(atomdir_tx *tx, const char *path, int flags, mode_t mode,
                      atomdir_file **file);
int atomdir_file_close(atomdir_file *file); /* frees the handle */
/* Reads fewer than `size` bytes only at the end of the file. */
ssize_t atomdir_pread(atomdir_file *file, void *data, size_t size, uint64_t offset);
/* Writes all of the data. */
ssize_t atomdir_pwrite(atomdir_file *file, const void *data, size_t size, uint64_t offset);
/* Writes all of the data at the end of a file, which must be open with O_APPEND. */
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
/* Like readlink(2), with a byte 0 at the end. -ERANGE if they do not fit. */
ssize_t atomdir_readlink(atomdir_tx *tx, const char *path, char *target, size_t size);

struct atomdir_entry {
    const char *name; /* valid until the directory is closed */
    unsigned type;    /* S_IFREG, S_IFDIR, ... */
    uint64_t inode;
};

/* Lists a directory as it is at this moment, sorted by name, without "." and "..". */
int atomdir_dir_open(atomdir_tx *tx, const char *path, atomdir_dir **dir);
int atomdir_dir_next(atomdir_dir *dir, struct atomdir_entry *entry);
void atomdir_dir_close(atomdir_dir *dir);

/* ---- Attributes. atomdir_stat and atomdir_chmod follow symbolic links; the others do not. ---- */
int atomdir_stat(atomdir_tx *tx, const char *path, struct stat *stat);
int atomdir_lstat(atomdir_tx *tx, const char *path, struct stat *stat);
int atomdir_chmod(atomdir_tx *tx, const char *path, mode_t mode);
/* (uid_t) -1 and (gid_t) -1 leave the owner and the group unchanged. */
int atomdir_chown(atomdir_tx *tx, const char *path, uid_t user, gid_t group);
/* Sets the times of access and modification, as in utimensat(2), with UTIME_OMIT and UTIME_NOW. */
int atomdir_utimens(atomdir_tx *tx, const char *path, const struct timespec times[2]);
/* Like getxattr(2) and listxattr(2): with `size` 0, return the length. */
ssize_t atomdir_getxattr(atomdir_tx *tx, const char *path, const char *name, void *value,
                         size_t size);
ssize_t atomdir_listxattr(atomdir_tx *tx, const char *path, char *names, size_t size);
int atomdir_setxattr(atomdir_tx *tx, const char *path, const char *name, const void *value,
                     size_t size);
int atomdir_removexattr(atomdir_tx *tx, const char *path, const char *name);

/* ---- Three calls around existing code ----
 *
 * Between atomdir_begin_here and atomdir_commit_here, ordinary system calls of this thread on
 * ordinary paths below the store's root are in a transaction: open, write, rename, unlink, stat. So are
 * those of libraries, and of processes and threads that this thread starts.
 * The calling thread gets a mount namespace of its own, in which the transaction's view is mounted
 * over the store, and leaves it at the end. A call is in the transaction if its path, absolute or
 * relative to the working directory, is resolved in this namespace; descriptors of files opened there
 * stay in when passed on. Not in it are files and directories that were opened before, and what is
 * opened relative to them; other threads; paths that reach the store's directory through another mount
 * of its file system; everything outside the store.
 *
 * Close the files that you have opened before the end: later, each call on them fails, because their
 * transaction has ended. Threads and processes that were started in the transaction and still run
 * stay in the view, where each call fails.
 *
 * From the first begin_here on, this thread has a working directory, root and umask of its own,
 * which it no longer shares with the other threads (unshare(2), CLONE_FS).
 * The store must have a service; the command atomdir in PATH starts one if needed. A thread without
 * CAP_SYS_ADMIN and CAP_SYS_CHROOT, which root's have, moves its process into a user namespace at the
 * first begin_here, for good: docs/c.md says what that means. -EPERM if the process has other threads.
 * A begin_here in a transaction of this thread returns -EALREADY, and in a forked child -EBUSY. With
 * ATOMDIR_FLATTEN, code that brings its own transaction can be called in one of the same store: the
 * inner begin_here only counts, the inner commit_here does nothing, and an inner abort_here has
 * all that follow fail with -ECANCELED and the outermost commit nothing.
 */
#define ATOMDIR_FLATTEN 1
int atomdir_begin_here(const char *path, int flags);

/* Leaves the view and commits. If the thread cannot leave, because it has given up its privileges,
 * fails with -EPERM and commits nothing. If the commit fails, the transaction is aborted. */
int atomdir_commit_here(void);

/* Leaves the view and drops the changes. */
int atomdir_abort_here(void);

#ifdef __cplusplus
}
#endif

#endif
