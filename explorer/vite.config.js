import { createHash } from "node:crypto";
import { readFileSync, readdirSync } from "node:fs";
import { defineConfig } from "vite";

// What the bundle is made of. A test compares this hash with the one in the bundle's first line.
const sources = ["package-lock.json", "package.json", "vite.config.js", ...readdirSync("src").sort().map((name) => `src/${name}`)];

function sourcesHash() {
  const hash = createHash("sha256");
  for (const name of sources) hash.update(name).update("\0").update(readFileSync(name)).update("\0");
  return hash.digest("hex");
}

export default defineConfig({
  oxc: { jsx: { runtime: "automatic", importSource: "preact" } },
  build: {
    lib: { entry: "src/main.jsx", formats: ["iife"], name: "polyfuseExplorer", fileName: () => "app.js" },
    outDir: "../polyfuse/show/explorer",
    emptyOutDir: false,
    target: "es2022",
    minify: true,
  },
  plugins: [
    {
      name: "hash-of-the-sources",
      generateBundle(_, bundle) {
        for (const each of Object.values(bundle)) {
          if (each.type === "chunk") each.code = `/* polyfuse explorer, built from explorer/ with sources ${sourcesHash()} */\n${each.code}`;
        }
      },
    },
  ],
});
