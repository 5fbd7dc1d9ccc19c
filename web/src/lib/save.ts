/** Pictures and tables as files of the person's own. */

export function save(name: string, content: BlobPart, type: string): void {
  const address = URL.createObjectURL(new Blob([content], { type }));
  const a = document.createElement("a");
  a.href = address;
  a.download = name;
  a.click();
  setTimeout(() => URL.revokeObjectURL(address), 10_000);
}

export function saveCsv(name: string, text: string): void {
  save(`${name}.csv`, "\ufeff" + text, "text/csv;charset=utf-8"); // the mark tells spreadsheets that it is UTF-8
}

export function saveSvg(name: string, text: string): void {
  save(`${name}.svg`, text, "image/svg+xml");
}

export function saveCanvas(name: string, canvas: HTMLCanvasElement): Promise<void> {
  return new Promise((done, fail) =>
    canvas.toBlob((blob) => {
      if (!blob) return fail(new Error("the picture is too large for this browser"));
      save(`${name}.png`, blob, "image/png");
      done();
    }),
  );
}

/** A drawing as a PNG, twice as fine as the screen's points. */
export async function saveSvgAsPng(name: string, text: string): Promise<void> {
  const image = new Image();
  const address = URL.createObjectURL(new Blob([text], { type: "image/svg+xml" }));
  try {
    await new Promise<void>((done, fail) => {
      image.onload = () => done();
      image.onerror = () => fail(new Error("the drawing could not be read"));
      image.src = address;
    });
    const canvas = document.createElement("canvas");
    const fine = Math.min(2, 8000 / Math.max(image.width, image.height));
    canvas.width = image.width * fine;
    canvas.height = image.height * fine;
    canvas.getContext("2d")!.drawImage(image, 0, 0, canvas.width, canvas.height);
    await saveCanvas(name, canvas);
  } finally {
    URL.revokeObjectURL(address);
  }
}

const KEPT = [
  "fill", "stroke", "stroke-width", "stroke-dasharray", "stroke-opacity", "fill-opacity", "opacity",
  "font-family", "font-size", "font-weight", "text-anchor", "dominant-baseline",
];

/** An SVG of the page as a file that looks the same on its own: the styles it has here are written into it. */
export function standalone(drawing: SVGSVGElement, paper: string): string {
  const copy = drawing.cloneNode(true) as SVGSVGElement;
  const from = [drawing, ...drawing.querySelectorAll("*")];
  const to = [copy, ...copy.querySelectorAll("*")];
  from.forEach((element, i) => {
    const style = getComputedStyle(element);
    const target = to[i]!;
    for (const key of KEPT) {
      const value = style.getPropertyValue(key);
      if (value) target.setAttribute(key, value);
    }
    target.removeAttribute("class");
  });
  const { width, height } = sizes(drawing);
  copy.setAttribute("xmlns", "http://www.w3.org/2000/svg");
  copy.setAttribute("width", String(width));
  copy.setAttribute("height", String(height));
  const back = document.createElementNS("http://www.w3.org/2000/svg", "rect");
  back.setAttribute("width", "100%");
  back.setAttribute("height", "100%");
  back.setAttribute("fill", paper);
  copy.prepend(back);
  return new XMLSerializer().serializeToString(copy);
}

function sizes(drawing: SVGSVGElement): { width: number; height: number } {
  const view = drawing.viewBox.baseVal;
  if (view && view.width) return { width: view.width, height: view.height };
  const box = drawing.getBoundingClientRect();
  return { width: box.width, height: box.height };
}

export function table(rows: (string | number)[][]): string {
  const cell = (x: string | number) => (typeof x === "string" && /[",\n\r]/.test(x) ? `"${x.replaceAll('"', '""')}"` : String(x));
  return rows.map((row) => row.map(cell).join(",")).join("\n") + "\n";
}
