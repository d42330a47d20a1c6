import io, stat, sys, tarfile, zipfile
outside = sys.argv[1]
def archive(name, *entries):
    with tarfile.open(name + '.tar', 'w', format=tarfile.PAX_FORMAT) as tar:
        for path, kind, target in entries + (('last', R, ''),):
            info = tarfile.TarInfo(path)
            info.type = kind
            if kind == tarfile.REGTYPE:
                info.size = 4
                tar.addfile(info, io.BytesIO(b'evil'))
            else:
                info.linkname = target
                tar.addfile(info)
R, L, S, D = tarfile.REGTYPE, tarfile.LNKTYPE, tarfile.SYMTYPE, tarfile.DIRTYPE
archive('dots', ('good', R, ''), ('a/../../evil', R, ''))
archive('through-link', ('good', R, ''), ('a', S, outside), ('a/evil', R, ''))
archive('through-two', ('good', R, ''), ('a', S, '.'), ('a/b', S, '..'), ('b/evil', R, ''))
archive('present-link', ('good', R, ''), ('out/evil', R, ''))
archive('hard-link', ('good', R, ''), ('a', L, '../outside/victim'))
archive('hard-link-through', ('good', R, ''), ('a', S, outside), ('b', L, 'a/victim'))
archive('device', ('good', R, ''), ('a', tarfile.CHRTYPE, ''))
archive('unknown', ('good', R, ''), ('a', b'M', ''))
archive('control-below', ('good', R, ''), ('d/.atomdir', D, ''), ('d/.atomdir/settings', R, ''))
archive('control-link', ('good', R, ''), ('d/.atomdir', S, outside))
archive('control-through', ('good', R, ''), ('d/s', S, '.atomdir'), ('d/.atomdir/x', R, ''), ('d/s/y', R, ''))
archive('in-control', ('good', R, ''), ('.atomdir/header', R, ''))
with zipfile.ZipFile('zipped.zip', 'w') as zip:
    zip.writestr('good', 'good')
    zip.writestr('../evil', 'evil')
    zip.writestr('last', 'good')
with zipfile.ZipFile('zip-control.zip', 'w') as zip:
    zip.writestr('good', 'good')
    zip.writestr('d/.atomdir/settings', 'allow 0')
    zip.writestr('last', 'good')
with zipfile.ZipFile('zip-link.zip', 'w') as zip:
    zip.writestr('good', 'good')
    link = zipfile.ZipInfo('a')
    link.external_attr = (stat.S_IFLNK | 0o777) << 16
    zip.writestr(link, outside)
    zip.writestr('a/evil', 'evil')
    zip.writestr('last', 'good')
with open('cut.tar', 'wb') as cut:
    cut.write(open('dots.tar', 'rb').read()[:2000])
# These are odd and harm nobody.
archive('absolute', ('/good', R, ''), (outside + '/new', R, ''))
archive('twice', ('a', R, ''), ('b', L, 'a'), ('good', R, ''), ('a', D, ''), ('a/x', R, ''))
archive('over-link', ('out', R, ''), ('inner', R, ''), ('good', R, ''))
