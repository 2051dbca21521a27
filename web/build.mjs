// Builds the program of the HTML report into the directory given as the first argument: page.js, page.css and the
// licences of what is in them. With --tests it builds the tests instead. NODE_PATH is where the modules of
// package-lock.json are, which is not beside this file.
import { createRequire } from "node:module";
import { readdir, readFile, writeFile, mkdir } from "node:fs/promises";
import { join } from "node:path";

const [out, mode] = process.argv.slice(2);
const modules = process.env.NODE_PATH;
const { build } = createRequire(join(modules, "x"))("esbuild");
const common = { bundle: true, nodePaths: [modules], target: "es2022", charset: "ascii", logLevel: "warning" };
await mkdir(out, { recursive: true });

if (mode === "--tests") {
  const tests = (await readdir("test")).filter((f) => f.endsWith(".test.ts")).map((f) => join("test", f));
  await build({ ...common, entryPoints: tests, outdir: out, platform: "node", format: "esm",
    outExtension: { ".js": ".mjs" } });
} else {
  await build({ ...common, entryPoints: { page: "src/main.ts" }, outdir: out, format: "iife", minify: true,
    legalComments: "none" });
  const { dependencies } = JSON.parse(await readFile("package.json", "utf8"));
  let licenses = "";
  for (const [name, version] of Object.entries(dependencies)) {
    licenses += `${name} ${version}\n\n${await readFile(join(modules, name, "LICENSE"), "utf8")}\n`;
  }
  await writeFile(join(out, "licenses.txt"), licenses);
}
