/* Uses every function of atomdir.h but the three of here.c: library STORE embedded|service */
#include "check.h"

static atomdir_store *store;
static atomdir_tx *tx;

static void begin(void) { CHECK(atomdir_begin(store, 0, "test", &tx) == 0); }

static void contents(void)
{
    void *data;
    size_t size;
    char buffer[16];
    struct stat stat;
    atomdir_file *file;

    begin();
    CHECK(atomdir_id(tx) > 0);
    CHECK((atomdir_view(tx) == NULL) == (atomdir_is_embedded(store) == 1));
    CHECK(atomdir_write_file(tx, "a", "one", 3) == 0);
    CHECK(atomdir_read_file(tx, "a", &data, &size) == 0);
    CHECK(size == 3 && strcmp((char *)data, "one") == 0);
    atomdir_free(data);
    CHECK(atomdir_write_file(tx, "empty", NULL, 0) == 0);
    CHECK(atomdir_file_open(tx, "a", O_RDWR, 0, &file) == 0);
    CHECK(atomdir_pwrite(file, "XY", 2, 5) == 2);
    CHECK(atomdir_pread(file, buffer, sizeof buffer, 0) == 7);
    CHECK(memcmp(buffer, "one\0\0XY", 7) == 0);
    CHECK(atomdir_ftruncate(file, 4) == 0);
    CHECK(atomdir_fstat(file, &stat) == 0 && stat.st_size == 4);
    /* A file that is open keeps the transaction from being committed. */
    CHECK(atomdir_commit(tx, NULL) == ATOMDIR_EINUSE);
    CHECK(atomdir_file_close(file) == 0);
    CHECK(atomdir_file_open(tx, "log", O_WRONLY | O_APPEND | O_CREAT | O_EXCL, 0600, &file) == 0);
    CHECK(atomdir_append(file, "1\n", 2) == 2);
    CHECK(atomdir_append(file, "2\n", 2) == 2);
    CHECK(atomdir_pread(file, buffer, 1, 0) == -EBADF);
    CHECK(atomdir_file_close(file) == 0);
    CHECK(atomdir_file_open(tx, "log", O_WRONLY | O_CREAT | O_EXCL, 0600, &file) == -EEXIST);
    CHECK(atomdir_file_open(tx, "a", O_RDONLY | O_DIRECTORY, 0, &file) == -EINVAL);
    CHECK(atomdir_commit(tx, NULL) == 0);
}

static void names(void)
{
    struct atomdir_entry entry;
    struct stat stat;
    struct timespec times[2] = {{0, UTIME_OMIT}, {-5, 7}};
    atomdir_dir *dir;
    char buffer[64];

    begin();
    CHECK(atomdir_mkdir(tx, "d", 0755) == 0);
    CHECK(atomdir_mkdir(tx, "d", 0755) == -EEXIST);
    CHECK(atomdir_rename(tx, "a", "d/a", 0) == 0);
    CHECK(atomdir_rename(tx, "log", "d/a", ATOMDIR_NOREPLACE) == -EEXIST);
    CHECK(atomdir_rename(tx, "log", "d/a", ATOMDIR_EXCHANGE) == 0);
    CHECK(atomdir_link(tx, "d/a", "hard") == 0);
    CHECK(atomdir_symlink(tx, "d/a", "soft") == 0);
    CHECK(atomdir_readlink(tx, "soft", buffer, sizeof buffer) == 3);
    CHECK(strcmp(buffer, "d/a") == 0);
    CHECK(atomdir_readlink(tx, "soft", buffer, 3) == -ERANGE);
    CHECK(atomdir_stat(tx, "soft", &stat) == 0);
    CHECK(S_ISREG(stat.st_mode) && stat.st_nlink == 2 && stat.st_size == 4);
    CHECK(atomdir_lstat(tx, "soft", &stat) == 0 && S_ISLNK(stat.st_mode));
    CHECK(atomdir_chmod(tx, "soft", 0640) == 0);
    CHECK(atomdir_chown(tx, "hard", (uid_t)-1, getgid()) == 0);
    CHECK(atomdir_utimens(tx, "hard", times) == 0);
    CHECK(atomdir_stat(tx, "d/a", &stat) == 0);
    CHECK((stat.st_mode & 07777) == 0640);
    CHECK(stat.st_mtim.tv_sec == -5 && stat.st_mtim.tv_nsec == 7);
    CHECK(atomdir_setxattr(tx, "hard", "user.x", "value", 5) == 0);
    CHECK(atomdir_getxattr(tx, "hard", "user.x", NULL, 0) == 5);
    CHECK(atomdir_getxattr(tx, "hard", "user.x", buffer, sizeof buffer) == 5);
    CHECK(atomdir_getxattr(tx, "hard", "user.none", NULL, 0) == -ENODATA);
    CHECK(atomdir_listxattr(tx, "hard", buffer, sizeof buffer) == 7);
    CHECK(strcmp(buffer, "user.x") == 0);
    CHECK(atomdir_removexattr(tx, "hard", "user.x") == 0);
    CHECK(atomdir_dir_open(tx, "d", &dir) == 0);
    CHECK(atomdir_dir_next(dir, &entry) == 1);
    CHECK(strcmp(entry.name, "a") == 0 && entry.type == S_IFREG);
    CHECK(atomdir_dir_next(dir, &entry) == 0);
    atomdir_dir_close(dir);
    CHECK(atomdir_rmdir(tx, "d") == -ENOTEMPTY);
    CHECK(atomdir_remove_all(tx, "d") == 0);
    CHECK(atomdir_mkdir(tx, "e", 0755) == 0 && atomdir_rmdir(tx, "e") == 0);
    CHECK(atomdir_unlink(tx, "none") == -ENOENT);
    CHECK(strstr(atomdir_message(), "none") != NULL);
    CHECK(atomdir_unlink(tx, "../up") == -EXDEV);
    CHECK(atomdir_unlink(tx, NULL) == -EINVAL);
    CHECK(atomdir_unlink(NULL, "a") == -EINVAL);
    atomdir_abort(tx);
}

static void conflicts(void)
{
    struct atomdir_conflict conflict;
    atomdir_tx *other;
    uint64_t sequence = 0;

    begin();
    CHECK(atomdir_begin(store, ATOMDIR_SERIALIZABLE | ATOMDIR_LAZY, NULL, &other) == 0);
    CHECK(atomdir_write_file(tx, "a", "mine", 4) == 0);
    CHECK(atomdir_write_file(other, "a", "other", 5) == 0);
    CHECK(atomdir_commit(other, &sequence) == 0 && sequence > 0);
    CHECK(atomdir_sync(store) == 0);
    CHECK(atomdir_commit(tx, NULL) == ATOMDIR_ECONFLICT);
    CHECK(atomdir_conflict_count() > 0);
    CHECK(atomdir_conflict_at(0, &conflict) == 0);
    CHECK(strcmp(conflict.path, "a") == 0 && conflict.by == ATOMDIR_BY_COMMIT);
    CHECK(conflict.commit == sequence && strstr(conflict.description, "'a'") != NULL);
    CHECK(atomdir_conflict_at(1000, &conflict) == -EINVAL);
    atomdir_abort(tx);

    begin();
    CHECK(atomdir_write_file(tx, "kept", "1", 1) == 0);
    CHECK(atomdir_set_savepoint(tx, "here") == 0);
    CHECK(atomdir_write_file(tx, "dropped", "1", 1) == 0);
    CHECK(atomdir_roll_back(tx, "here") == 0);
    CHECK(atomdir_roll_back(tx, "nowhere") == -ENOENT);
    CHECK(atomdir_nest(tx, &other) == 0);
    CHECK(atomdir_write_file(other, "inner", "1", 1) == 0);
    CHECK(atomdir_commit(other, &sequence) == 0 && sequence == 0);
    CHECK(atomdir_lock(tx, "kept", ATOMDIR_SHARED, 0) == 0);
    CHECK(atomdir_commit(tx, NULL) == 0);

    CHECK(atomdir_begin(store, 64, NULL, &other) == -EINVAL);
    atomdir_abort(NULL);
}

static int tries;

static int count(atomdir_tx *counting, void *argument)
{
    atomdir_tx *other;

    CHECK(argument == &tries);
    CHECK(atomdir_write_file(counting, "a", "counted", 7) == 0);
    if (++tries < 3) {
        CHECK(atomdir_begin(store, 0, NULL, &other) == 0);
        CHECK(atomdir_write_file(other, "a", "between", 7) == 0);
        CHECK(atomdir_commit(other, NULL) == 0);
    }
    return 0;
}

static int refuse(atomdir_tx *refused, void *argument)
{
    (void)argument;
    CHECK(atomdir_unlink(refused, "a") == 0);
    return 17;
}

static void retries(void)
{
    CHECK(atomdir_run(store, 0, NULL, count, &tries) == 0);
    CHECK(tries == 3);
    CHECK(atomdir_run(store, 0, NULL, refuse, NULL) == 17);
    CHECK(atomdir_run(store, 0, NULL, NULL, NULL) == -EINVAL);
}

/* The child has the parent's handles, and can do nothing with them but free them. */
static void forks(void)
{
    atomdir_file *file;
    atomdir_tx *other;
    pid_t child;
    int status;

    begin();
    CHECK(atomdir_write_file(tx, "parent", "1", 1) == 0);
    CHECK(atomdir_file_open(tx, "parent", O_RDWR, 0, &file) == 0);
    child = fork();
    CHECK(child >= 0);
    if (child == 0) {
        CHECK(atomdir_write_file(tx, "child", "1", 1) == -ESTALE);
        CHECK(atomdir_pwrite(file, "child", 5, 0) == -ESTALE);
        CHECK(atomdir_file_close(file) == 0);
        CHECK(atomdir_begin(store, 0, NULL, &other) == ATOMDIR_EFORKED);
        CHECK(atomdir_commit(tx, NULL) == ATOMDIR_EFORKED);
        CHECK(atomdir_set_savepoint(tx, "child") < 0);
        atomdir_abort(tx);
        CHECK(atomdir_sync(store) == ATOMDIR_EFORKED);
        atomdir_close(store);
        _exit(0);
    }
    CHECK(waitpid(child, &status, 0) == child && status == 0);
    CHECK(atomdir_pwrite(file, "2", 1, 0) == 1);
    CHECK(atomdir_file_close(file) == 0);
    CHECK(atomdir_commit(tx, NULL) == 0);
}

int main(int argc, char **argv)
{
    int flags;

    CHECK(argc == 3);
    flags = strcmp(argv[2], "service") == 0 ? ATOMDIR_SERVICE : ATOMDIR_EMBEDDED;
    CHECK(atomdir_message()[0] == '\0');
    CHECK(atomdir_open("/", 0, &store) == ATOMDIR_ENOSTORE);
    CHECK(atomdir_open(argv[1], 99, &store) == -EINVAL);
    CHECK(atomdir_init(argv[1], NULL) == 0);
    CHECK(atomdir_open(argv[1], flags, &store) == 0);
    CHECK(strcmp(atomdir_root(store), argv[1]) == 0);
    CHECK(atomdir_is_embedded(store) == (flags == ATOMDIR_EMBEDDED));
    contents();
    names();
    conflicts();
    retries();
    forks();
    /* Transactions keep the store open. */
    begin();
    CHECK(atomdir_close(store) == 0);
    CHECK(atomdir_write_file(tx, "last", "1", 1) == 0);
    CHECK(atomdir_commit(tx, NULL) == 0);
    return 0;
}
