/* Without privileges, atomdir_begin_here fails and changes nothing: refused STORE */
#include "check.h"

int main(int argc, char **argv)
{
    char before[4096], after[4096];

    CHECK(argc == 2);
    CHECK(chdir(argv[1]) == 0 && getcwd(before, sizeof before) != NULL);
    CHECK(atomdir_begin_here(argv[1]) == -EPERM);
    CHECK(strstr(atomdir_message(), "CAP_SYS_ADMIN") != NULL);
    CHECK(getcwd(after, sizeof after) != NULL && strcmp(before, after) == 0);
    CHECK(atomdir_commit_here() == -EINVAL);
    return 0;
}
