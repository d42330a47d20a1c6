// Prints what chokidar says of a directory's files, until the standard input ends.
import { createRequire } from "node:module";
import { relative } from "node:path";

const [store, packages] = process.argv.slice(2);
const chokidar = createRequire(packages + "/")("chokidar");
const watcher = chokidar.watch(store, {
    ignoreInitial: true,
    ignored: (path) => path.includes("/.atomdir"),
});
watcher.on("all", (event, path) => console.log(event, relative(store, path)));
watcher.on("ready", () => console.log("ready"));
// A file that goes is held back for a moment, since it may come back.
process.stdin.on("end", () => setTimeout(() => process.exit(0), 1500));
process.stdin.resume();
