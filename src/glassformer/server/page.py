"""The built page, and what is said in its place while it is not built."""

import html
from pathlib import Path
from typing import Any

from fastapi import Response

from glassformer.server.refusal import Refusal

FOLDER = Path(__file__).parent / "page"

TYPES = {  # not the machine's own table, which may call a script plain text
    ".css": "text/css; charset=utf-8",
    ".html": "text/html; charset=utf-8",
    ".ico": "image/x-icon",
    ".js": "text/javascript; charset=utf-8",
    ".json": "application/json",
    ".map": "application/json",
    ".png": "image/png",
    ".svg": "image/svg+xml",
    ".txt": "text/plain; charset=utf-8",
    ".webmanifest": "application/manifest+json",
    ".woff2": "font/woff2",
}

MISSING = """<!doctype html><meta charset="utf-8"><title>Glassformer</title>
<h1>The page is not built</h1>
<p>The server runs, and its API is described at <a href="/docs">/docs</a>. The page is made from <code>web/</code>:</p>
<pre>cd web &amp;&amp; npm install --no-save &amp;&amp; npm run build</pre>
<p>Then load this address again.</p>
"""


def serve(path: str) -> Response:
    """A file of the page; nothing outside its folder."""
    root = FOLDER.resolve()
    try:
        file = (root / (path or "index.html")).resolve()
        inside = file.is_relative_to(root) and file.is_file() and file.suffix in TYPES
        if inside:
            forever = file.parent.name == "assets"  # their names change with what is in them
            caching = "public, max-age=31536000, immutable" if forever else "no-cache"
            return Response(file.read_bytes(), media_type=TYPES[file.suffix], headers={"Cache-Control": caching})
    except (OSError, ValueError):  # a name too long, or with a null
        pass
    if path in ("", "index.html"):
        return Response(MISSING, 404, media_type="text/html; charset=utf-8", headers={"Cache-Control": "no-cache"})
    raise Refusal(404, "unknown-page", "There is nothing at this address. The page is at /, the API is described at /docs.")


def documentation(description: dict[str, Any]) -> str:
    """The API's description as a page without scripts; FastAPI's own would load them from elsewhere."""
    parts = []
    for path, methods in description["paths"].items():
        for method, about in methods.items():
            parts.append(f"<h2><code>{method.upper()} {html.escape(path)}</code></h2>")
            parts.append(f"<p>{html.escape(about.get('description') or about.get('summary', ''))}</p>")
            fields = [(each["name"], each["schema"], each.get("required", False)) for each in about.get("parameters", [])]
            body = about.get("requestBody", {}).get("content", {}).get("application/json", {}).get("schema", {})
            if name := body.get("$ref", "").rpartition("/")[2]:
                schema = description["components"]["schemas"][name]
                fields += [(key, value, key in schema.get("required", [])) for key, value in schema["properties"].items()]
            if fields:
                parts.append(
                    "<table><tr><th>name<th>type<th>default<th>what it is</tr>" + "".join(map(_row, fields)) + "</table>"
                )
    info = description["info"]
    return (
        f'<!doctype html><html lang="en"><meta charset="utf-8"><title>{html.escape(info["title"])}</title>'
        f"<h1>{html.escape(info['title'])} {html.escape(info['version'])}</h1><p>{html.escape(info['description'])}</p>"
        f'<p>For programs: <a href="/openapi.json">/openapi.json</a>.</p>{"".join(parts)}'
    )


def _row(field: tuple[str, dict[str, Any], bool]) -> str:
    name, schema, required = field
    kinds = [_kind(each) for each in schema.get("anyOf", [schema])]
    default = "required" if required else str(schema.get("default", ""))
    cells = (name, " or ".join(kinds), default, schema.get("description", ""))
    return "<tr>" + "".join(f"<td>{html.escape(cell)}" for cell in cells) + "</tr>"


def _kind(schema: dict[str, Any]) -> str:
    if "items" in schema:
        return f"list of {_kind(schema['items'])}"
    names = [each.get("$ref", "").rpartition("/")[2] for each in schema.get("oneOf", [])]
    return str(schema.get("const") or schema.get("type") or schema.get("$ref", "").rpartition("/")[2] or " or ".join(names))
