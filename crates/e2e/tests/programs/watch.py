"""Prints what watchdog says of a directory's files, until the standard input ends."""

import os
import sys
import time

from watchdog.events import FileSystemEventHandler
from watchdog.observers import Observer

STORE = sys.argv[1]


class Printed(FileSystemEventHandler):
    def on_any_event(self, event):
        if event.is_directory or event.event_type not in ("created", "deleted", "moved"):
            return
        paths = [os.path.relpath(path, STORE) for path in (event.src_path, event.dest_path) if path]
        shown = ["-" if path.startswith(".atomdir/") else path for path in paths]
        if set(shown) != {"-"}:
            print(event.event_type, *shown, flush=True)


observer = Observer()
observer.schedule(Printed(), STORE, recursive=True)
observer.start()
print("ready", flush=True)
sys.stdin.read()
# Half of a move is held back for half a second.
time.sleep(1.5)
observer.stop()
observer.join()
