/* Runs an unchanged program in a transaction, by three calls: around STORE ARGUMENT...
 *
 * The program is compiled with its main renamed to unchanged_main, and gets the ARGUMENTs. */
#include "check.h"

int unchanged_main(int argc, char **argv);

int main(int argc, char **argv)
{
    int status;

    CHECK(argc > 1);
    CHECK(atomdir_begin_here(argv[1], 0) == 0);
    status = unchanged_main(argc - 1, argv + 1);
    CHECK(status == 0);
    CHECK(atomdir_commit_here() == 0);
    return 0;
}
