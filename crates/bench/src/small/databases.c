/*
 * Small transactions in a database: each puts some values under some keys and commits.
 *
 * The arguments and the dialogue with the parent are those of child.rs. Each database has the
 * settings that its manual gives for commits that survive a power cut. A lazy commit may be lost,
 * but never damages the database.
 */
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const char *directory;
static long files, value_bytes, is_new, is_lazy, threads, first, commits;

static void die(const char *what, const char *why)
{
    fprintf(stderr, "%s: %s\n", what, why);
    exit(1);
}

#ifdef PEER_SQLITE
#include <sqlite3.h>

typedef struct { sqlite3 *db; sqlite3_stmt *begin, *put, *commit; } session;

static void check(sqlite3 *db, int code, const char *what)
{
    if (code != SQLITE_OK && code != SQLITE_DONE)
        die(what, sqlite3_errmsg(db));
}

static void open_session(session *s)
{
    char path[4096];
    snprintf(path, sizeof path, "%s/database", directory);
    check(s->db, sqlite3_open(path, &s->db), "open");
    sqlite3_busy_timeout(s->db, 60000);
    check(s->db, sqlite3_exec(s->db, "PRAGMA journal_mode=WAL", 0, 0, 0), "journal_mode");
    check(s->db, sqlite3_exec(s->db, is_lazy ? "PRAGMA synchronous=NORMAL"
                                             : "PRAGMA synchronous=FULL", 0, 0, 0), "synchronous");
    check(s->db, sqlite3_exec(s->db, "CREATE TABLE IF NOT EXISTS files"
                              " (name TEXT PRIMARY KEY, contents BLOB)", 0, 0, 0), "create");
    check(s->db, sqlite3_prepare_v2(s->db, "BEGIN IMMEDIATE", -1, &s->begin, 0), "prepare");
    check(s->db, sqlite3_prepare_v2(s->db, "INSERT INTO files VALUES (?1, ?2)"
                                    " ON CONFLICT (name) DO UPDATE SET contents = ?2",
                                    -1, &s->put, 0), "prepare");
    check(s->db, sqlite3_prepare_v2(s->db, "COMMIT", -1, &s->commit, 0), "prepare");
}

static void close_session(session *s);

/* Create the database first: threads that create it at the same time would fail. */
static void open_all(void)
{
    session s;
    open_session(&s);
    close_session(&s);
}

static void close_all(void) {}

static void step(session *s, sqlite3_stmt *statement, const char *what)
{
    check(s->db, sqlite3_step(statement), what);
    sqlite3_reset(statement);
}

static void commit(session *s, char (*keys)[32], const char *value)
{
    step(s, s->begin, "begin");
    for (long file = 0; file < files; file++) {
        sqlite3_bind_text(s->put, 1, keys[file], -1, SQLITE_STATIC);
        sqlite3_bind_blob(s->put, 2, value, value_bytes, SQLITE_STATIC);
        step(s, s->put, "put");
    }
    step(s, s->commit, "commit");
}

static void close_session(session *s)
{
    sqlite3_finalize(s->begin);
    sqlite3_finalize(s->put);
    sqlite3_finalize(s->commit);
    sqlite3_close(s->db);
}
#endif

#ifdef PEER_LMDB
#include <lmdb.h>

typedef struct { int unused; } session;
static MDB_env *environment;
static MDB_dbi database;

static void check(int code, const char *what)
{
    if (code)
        die(what, mdb_strerror(code));
}

static void open_all(void)
{
    MDB_txn *txn;
    check(mdb_env_create(&environment), "create");
    check(mdb_env_set_mapsize(environment, (size_t)1 << 32), "mapsize");
    check(mdb_env_open(environment, directory, is_lazy ? MDB_NOMETASYNC : 0, 0644), "open");
    check(mdb_txn_begin(environment, NULL, 0, &txn), "begin");
    check(mdb_dbi_open(txn, NULL, 0, &database), "open");
    check(mdb_txn_commit(txn), "commit");
}

static void close_all(void) { mdb_env_close(environment); }
static void open_session(session *s) { s->unused = 0; }
static void close_session(session *s) { s->unused = 0; }

static void commit(session *s, char (*keys)[32], const char *value)
{
    MDB_txn *txn;
    (void)s;
    check(mdb_txn_begin(environment, NULL, 0, &txn), "begin");
    for (long file = 0; file < files; file++) {
        MDB_val key = { strlen(keys[file]), keys[file] };
        MDB_val contents = { value_bytes, (void *)value };
        check(mdb_put(txn, database, &key, &contents, 0), "put");
    }
    check(mdb_txn_commit(txn), "commit");
}
#endif

#ifdef PEER_BERKELEY_DB
#include <db.h>

typedef struct { int unused; } session;
static DB_ENV *environment;
static DB *database;

static void check(int code, const char *what)
{
    if (code)
        die(what, db_strerror(code));
}

static void open_all(void)
{
    /* Only the first process may run recovery. */
    u_int32_t flags = DB_CREATE | DB_INIT_TXN | DB_INIT_LOCK | DB_INIT_LOG | DB_INIT_MPOOL
                    | DB_THREAD | (first == 0 ? DB_RECOVER : 0);
    check(db_env_create(&environment, 0), "create");
    check(environment->set_cachesize(environment, 0, 64 << 20, 1), "cache");
    check(environment->set_lk_detect(environment, DB_LOCK_DEFAULT), "deadlocks");
    check(environment->set_lk_max_locks(environment, 100000), "locks");
    check(environment->set_lk_max_objects(environment, 100000), "locks");
    if (is_lazy)
        check(environment->set_flags(environment, DB_TXN_WRITE_NOSYNC, 1), "lazy");
    check(environment->open(environment, directory, flags, 0), "open");
    check(db_create(&database, environment, 0), "create");
    check(database->open(database, NULL, "database", NULL, DB_BTREE,
                         DB_CREATE | DB_AUTO_COMMIT | DB_THREAD, 0), "open");
}

static void close_all(void)
{
    check(database->close(database, 0), "close");
    check(environment->txn_checkpoint(environment, 0, 0, DB_FORCE), "checkpoint");
    check(environment->close(environment, 0), "close");
}

static void open_session(session *s) { s->unused = 0; }
static void close_session(session *s) { s->unused = 0; }

static int try_commit(char (*keys)[32], const char *value)
{
    DB_TXN *txn;
    check(environment->txn_begin(environment, NULL, &txn, 0), "begin");
    for (long file = 0; file < files; file++) {
        DBT key = { 0 }, contents = { 0 };
        key.data = keys[file];
        key.size = strlen(keys[file]);
        contents.data = (void *)value;
        contents.size = value_bytes;
        int code = database->put(database, txn, &key, &contents, 0);
        if (code) {
            check(txn->abort(txn), "abort");
            return code;
        }
    }
    return txn->commit(txn, 0);
}

static void commit(session *s, char (*keys)[32], const char *value)
{
    int code;
    (void)s;
    while ((code = try_commit(keys, value)) == DB_LOCK_DEADLOCK)
        ;
    check(code, "commit");
}
#endif

static pthread_barrier_t barrier;

static void name_keys(char (*keys)[32], long thread, long commit)
{
    long start = is_new ? commit * files : 0;
    for (long file = 0; file < files; file++)
        snprintf(keys[file], 32, "%ld/%ld", thread, start + file);
}

static void *commit_all(void *argument)
{
    long thread = (long)argument;
    char (*keys)[32] = calloc(files, sizeof *keys);
    char *value = malloc(value_bytes);
    session s;

    open_session(&s);
    if (!is_new) {
        memset(value, 'o', value_bytes);
        name_keys(keys, thread, 0);
        commit(&s, keys, value);
    }
    pthread_barrier_wait(&barrier);
    pthread_barrier_wait(&barrier);
    for (long number = 0; number < commits; number++) {
        /* Another value in each commit, since SQLite does not write an unchanged one. */
        memset(value, 'a' + number % 26, value_bytes);
        name_keys(keys, thread, number);
        commit(&s, keys, value);
    }
    pthread_barrier_wait(&barrier);
    pthread_barrier_wait(&barrier);
    close_session(&s);
    return NULL;
}

static void say(const char *word)
{
    printf("%s\n", word);
    fflush(stdout);
    while (getchar() != '\n' && !feof(stdin))
        ;
}

int main(int count, char **words)
{
    pthread_t running[64];

    if (count != 11)
        die("arguments", "see child.rs");
    directory = words[2];
    files = atol(words[3]);
    value_bytes = atol(words[4]);
    is_new = atol(words[5]);
    is_lazy = atol(words[6]);
    threads = atol(words[8]);
    first = atol(words[9]);
    commits = atol(words[10]);
    open_all();
    pthread_barrier_init(&barrier, NULL, threads + 1);
    for (long thread = 0; thread < threads; thread++)
        pthread_create(&running[thread], NULL, commit_all, (void *)(first + thread));
    pthread_barrier_wait(&barrier);
    say("ready");
    pthread_barrier_wait(&barrier);
    pthread_barrier_wait(&barrier);
    say("done");
    pthread_barrier_wait(&barrier);
    for (long thread = 0; thread < threads; thread++)
        pthread_join(running[thread], NULL);
    close_all();
    return 0;
}
