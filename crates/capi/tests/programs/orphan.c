/* The store's service is killed while a program uses it: orphan STORE
 *
 * Prints a line when the service may be killed, and reads one when it is dead. */
#include "check.h"

int main(int argc, char **argv)
{
    atomdir_store *store;
    atomdir_tx *tx, *other;
    atomdir_file *file;
    struct atomdir_ended_info ended;
    atomdir_ended *list;
    uint64_t id;
    char text[8];
    void *data;
    size_t size;

    CHECK(argc == 2);
    CHECK(atomdir_open(argv[1], ATOMDIR_SERVICE, &store) == 0);
    CHECK(atomdir_begin(store, 0, "orphan", &tx) == 0);
    id = atomdir_id(tx);
    CHECK(atomdir_write_file(tx, "lost", "1", 1) == 0);
    CHECK(atomdir_file_open(tx, "lost", O_RDWR, 0, &file) == 0);
    puts("ready");
    fflush(stdout);
    CHECK(fgets(text, sizeof text, stdin) != NULL);

    /* Every call fails, with a message. */
    CHECK(atomdir_pwrite(file, "2", 1, 0) < 0);
    CHECK(atomdir_write_file(tx, "lost too", "1", 1) < 0);
    CHECK(atomdir_read_file(tx, "lost", &data, &size) < 0);
    CHECK(atomdir_file_close(file) == 0);
    CHECK(atomdir_set_savepoint(tx, "s") == ATOMDIR_ESERVICE);
    CHECK(atomdir_commit(tx, NULL) == ATOMDIR_ESERVICE);
    CHECK(atomdir_message()[0] != '\0');
    atomdir_abort(tx);
    /* Without the service, it is unknown whether all commits are durable. */
    CHECK(atomdir_close(store) == ATOMDIR_ESERVICE);

    /* The store opens again in this process. None of the transaction's changes are left. */
    CHECK(atomdir_open(argv[1], 0, &store) == 0);
    CHECK(atomdir_is_embedded(store) == 1);
    CHECK(atomdir_begin(store, 0, NULL, &other) == 0);
    CHECK(atomdir_read_file(other, "lost", &data, &size) == -ENOENT);
    CHECK(atomdir_write_file(other, "kept", "1", 1) == 0);
    CHECK(atomdir_commit(other, NULL) == 0);
    CHECK(atomdir_close(store) == 0);

    /* The next service lists how the transaction ended. */
    CHECK(atomdir_open(argv[1], ATOMDIR_START, &store) == 0);
    CHECK(atomdir_ended_open(store, &list) == 0);
    CHECK(atomdir_ended_next(list, &ended) == 1);
    CHECK(ended.id == id && ended.user == geteuid() && strcmp(ended.label, "orphan") == 0);
    CHECK(ended.how == ATOMDIR_ENDED_DIED && ended.by == (uid_t)-1);
    CHECK(strstr(ended.description, "killed") != NULL && ended.ended.tv_sec >= ended.began.tv_sec);
    CHECK(atomdir_ended_next(list, &ended) == 0);
    atomdir_ended_close(list);
    CHECK(atomdir_close(store) == 0);
    return 0;
}
