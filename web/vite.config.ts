import { svelte } from "@sveltejs/vite-plugin-svelte";
import { defineConfig } from "vite";

// Built into the Python package. The names of the assets carry a hash of what is in them: the server lets browsers keep them
// for good, and a rebuild of the same source gives the same names and bytes.
export default defineConfig({
  base: "./",
  plugins: [svelte()],
  build: {
    outDir: "../src/glassformer/server/page",
    emptyOutDir: true,
    target: "es2022",
    modulePreload: { polyfill: false },
  },
  server: { proxy: { "/api": { target: "http://127.0.0.1:8765", changeOrigin: true, headers: { origin: "http://127.0.0.1:8765" } } } },
});
