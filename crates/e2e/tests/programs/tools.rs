//! Everyday tools.

use atomdir_testing::{Scenario, tools_present};

/// Makes a few objects of each type, with times long past.
const TREE: &str = r#"
mkdir -p src/deep/er empty many
for i in $(seq 300); do echo "file $i: alpha beta gamma" > many/f$i.txt; done
head -c 1000000 /dev/zero | tr '\0' 'x' > src/large
printf 'no newline at the end' > src/deep/odd
ln src/large src/deep/linked
ln -s ../large src/deep/link
ln -s /nowhere/at/all src/dangling
truncate -s 1M src/sparse
mkfifo src/fifo
chmod 4711 src/deep/odd
[ $(id -u) != 0 ] || chown -R 1000:1000 src/deep/er
touch -h -d '2001-02-03 04:05:06.123456789' src/deep/link
find . -depth ! -type l -exec touch -d '2001-02-03 04:05:06.123456789' {} +
"#;

fn scenario(name: &str, script: &str) -> Scenario {
    Scenario::shell(name, script).prepare(TREE).same_output()
}

#[test]
fn sed_in_place() {
    scenario(
        "sed",
        r#"
sed -i 's/beta/BETA/' many/*.txt
sed -i.bak '/file 1[0-9][0-9]/d' many/f1*.txt
sed -i --follow-symlinks 's/x/y/g' src/deep/link
perl -pi -e 's/alpha/ALPHA/' many/f2*.txt
cat many/*.txt | sha256sum
"#,
    )
    .check_for_each_owner();
}

#[test]
fn find_and_delete() {
    scenario(
        "find",
        r#"
find many -name 'f*5.txt' -delete -print | LC_ALL=C sort
find src -type f -newermt 2000-01-01 -printf '%y %m %n %s %p\n' | LC_ALL=C sort
find many -name '*1*' -exec rm {} +
find many -name '*2.txt' | xargs -n 7 rm -f
find . -empty -printf '%p\n' | LC_ALL=C sort
find src -depth -delete
find . -type f | wc -l
"#,
    )
    .check_for_each_owner();
}

/// Link counts of directories are left out, since overlayfs does not count them.
#[test]
fn shell_and_core_utilities() {
    scenario(
        "coreutils",
        r#"
if [ $(id -u) = 0 ]; then owner=7:8; else owner=$(id -u):$(id -g); fi
cp -a src copied && cp -r --sparse=always src plainly && cp --reflink=auto src/large again
mv many/f1.txt renamed && mv many moved && mv moved/f2.txt moved/f3.txt src
mv -T plainly/deep plainly/er && ln -f src/f2.txt moved/f4.txt && ln -sfn nowhere src/dangling
rm -rf copied/deep && rmdir empty && mkdir -p empty/again && install -m 640 -D src/large installed/here/large
echo appended >> src/deep/odd && : > moved/f5.txt && cat src/large >> src/large.twice && dd if=/dev/zero of=src/large bs=1000 count=3 seek=7 conv=notrunc 2>/dev/null
truncate -s 1234 moved/f6.txt && truncate -s +1M moved/f7.txt && shred -u moved/f8.txt
split -b 100000 src/large.twice pieces. && cat pieces.* | cmp - src/large.twice
sort -o moved/f9.txt moved/f9.txt moved/f10.txt && tac moved/f9.txt | tee reversed > /dev/null
mktemp -p . -d XXXXXX | wc -c && rmdir ./?????? 2>/dev/null || true
chmod -R g+w,o-r moved && chown -R $owner moved && chmod u-s src/deep/odd && touch moved/f11.txt new
for i in 1 2 3 4 5 6 7 8; do (for j in $(seq 50); do echo $i $j > parallel.$i.$j; done) & done; wait
cat parallel.* | LC_ALL=C sort | sha256sum; rm parallel.?.?
du -a --apparent-size -b src/deep | LC_ALL=C sort; ls -lnR --time-style=+ src moved/f1* | awk '/^total/ { next } /^d/ { $2 = "links" } 1'
test ! -e .atomdir && test ! -e ./.atomdir/socket && ls -a
"#,
    )
    .check_for_each_owner();
}

#[test]
fn tar_and_untar() {
    if !tools_present("tar", &["tar", "gzip", "xz"]) {
        return;
    }
    scenario(
        "tar",
        r#"
tar --sort=name --acls --xattrs -cf $HOME/all.tar .
mkdir unpacked && tar --acls --xattrs -xpf $HOME/all.tar -C unpacked
tar czf few.tar.gz src && tar tzf few.tar.gz | LC_ALL=C sort && rm few.tar.gz
tar xpf $HOME/all.tar --overwrite && tar xpf $HOME/all.tar --unlink-first ./many/f7.txt ./src/large
tar -df $HOME/all.tar || true
rm $HOME/all.tar
"#,
    )
    .check_for_each_owner();
}

#[test]
fn rsync_into_the_tree() {
    if !tools_present("rsync", &["rsync", "setfacl", "setfattr", "setcap"]) {
        return;
    }
    // The files to copy lie outside the store. Each run makes them and removes them at its
    // end. In an ordinary user's view no other user exists who could be in a list.
    const SCRIPT: &str = r#"
rm -rf $HOME/from && cp -a . $HOME/from
(cd $HOME/from
    echo longer than before > many/f1.txt; rm many/f2.txt; mkdir many/f2.txt
    setfacl -m u:$(id -u):r src/large; setfattr -n user.k -v v many/f3.txt; [ $(id -u) != 0 ] || setcap cap_chown+ep many/f4.txt
    mv src/deep moved; ln many/f5.txt moved/twice; dd if=/dev/urandom of=/dev/null count=1 2>/dev/null
    find . -depth ! -type l -exec touch -d '2011-12-13 14:15:16.171819202' {} +)
rsync -aHAXS --numeric-ids --delete $HOME/from/ ./
rsync -aHAX --delete --checksum --itemize-changes $HOME/from/ ./
rsync -a --inplace --no-whole-file $HOME/from/src/large src/inplace
touch -d '2011-12-13 14:15:16.171819202' src
rm -r $HOME/from
"#;
    scenario("rsync", SCRIPT)
        .explicit_times()
        .holes()
        .check_for_each_owner();
}

#[test]
fn access_control_and_capabilities() {
    if !tools_present(
        "acl",
        &[
            "setfacl", "getfacl", "setfattr", "getfattr", "setcap", "getcap",
        ],
    ) {
        return;
    }
    scenario(
        "acl",
        r#"
user=1000 group=50 other=1001
# No other user exists in an ordinary user's view.
[ $(id -u) = 0 ] || { user=$(id -u); group=$(id -g); other=$user; }
setfacl -m u:$user:rwx,g:$group:r-x many && setfacl -d -m u:$other:rw,m::r many
echo inherits > many/new && mkdir -p many/below/below && echo inherits > many/below/below/new
setfacl -R -m u:65534:r src/deep; setfacl -b src/deep/odd && setfacl -k many/below
chmod 640 many/new && chmod g-w many
cp -a many copied && cp -r many plainly && mv many/below moved
setfattr -n user.comment -v 'some text' src/large && setfattr -n user.gone -v x src/large && setfattr -x user.gone src/large
cp /bin/true program && cp /bin/true second
if [ $(id -u) = 0 ]; then
    setfattr -h -n trusted.link -v y src/dangling
    setcap cap_net_raw,cap_chown+ep program && setcap cap_fowner+ep second
fi
echo >> second
find many plainly moved src | LC_ALL=C sort > $HOME/names
xargs getfacl -n < $HOME/names && xargs getfattr -d -h -m - < $HOME/names && getcap program second
rm $HOME/names
[ $(id -u) = 0 ] || exit 0
setpriv --reuid 1000 --clear-groups sh -c 'cat many/f1.txt; cat src/deep/odd; echo x > src/large' 2>&1 || true
setpriv --reuid 1003 --regid 50 --clear-groups sh -c 'cat many/f1.txt; echo x > many/f1.txt' 2>&1 || true
"#,
    )
    .check_for_each_owner();
}

/// A Python process uses locks on ranges of bytes, and threads.
#[test]
fn python_with_range_locks() {
    if !tools_present("python-locks", &["python3"]) {
        return;
    }
    scenario(
        "python-locks",
        r#"
cat > script.py <<'END'
import fcntl, os, mmap, multiprocessing, shutil, tempfile

def count(kind):
    f = open("counters", "r+b", buffering=0)
    for i in range(200):
        at = (i % 2) * 8
        fcntl.lockf(f, fcntl.LOCK_EX, 8, at)
        n = int.from_bytes(os.pread(f.fileno(), 8, at), "big")
        os.pwrite(f.fileno(), (n + 1).to_bytes(8, "big"), at)
        fcntl.lockf(f, fcntl.LOCK_UN, 8, at)

open("counters", "wb").write(bytes(16))
workers = [multiprocessing.get_context("fork").Process(target=count, args=(i,)) for i in range(4)]
[w.start() for w in workers]
[w.join() for w in workers]
print(open("counters", "rb").read().hex(), [w.exitcode for w in workers])

f = open("counters", "r+b")
fcntl.lockf(f, fcntl.LOCK_EX, 8, 0)
if os.fork() == 0:
    g = open("counters", "r+b")
    fcntl.lockf(g, fcntl.LOCK_EX | fcntl.LOCK_NB, 8, 8)
    try:
        fcntl.lockf(g, fcntl.LOCK_EX | fcntl.LOCK_NB, 8, 4)
        os._exit(1)
    except OSError:
        os._exit(0)
print(os.wait()[1])

with tempfile.NamedTemporaryFile(dir=".") as t, mmap.mmap(os.open("src/large", os.O_RDWR), 0) as m:
    t.write(b"gone at the end")
    m[10:20] = b"0123456789"
shutil.copytree("src", "copy", symlinks=True, ignore=shutil.ignore_patterns("fifo"))
shutil.make_archive("archive", "zip", "many")
os.remove("archive.zip")
os.replace("many/f1.txt", "many/f2.txt")
print(sorted(os.scandir("many"), key=lambda e: e.name)[0].stat().st_size, len(list(os.walk("."))))
END
python3 -B script.py
"#,
    )
    .check_for_each_owner();
}
