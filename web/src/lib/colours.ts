/** From a number to a colour. Signed numbers: brown below 0, paper at 0, teal above. Weights: paper to teal. */

export type Scale = "diverging" | "sequential";
export type Theme = "light" | "dark";
export type Domain = readonly [low: number, high: number];

type RGB = readonly [number, number, number];

interface Palette {
  paper: RGB;
  negative: RGB[];
  positive: RGB[];
  void: RGB; // −∞ and what is not a number
}

const PALETTES: Record<Theme, Palette> = {
  light: {
    paper: [252, 252, 250],
    positive: [[186, 222, 219], [74, 158, 155], [6, 84, 83]],
    negative: [[240, 214, 184], [200, 128, 60], [120, 58, 10]],
    void: [222, 222, 218],
  },
  dark: {
    paper: [30, 34, 36],
    positive: [[26, 84, 84], [50, 152, 147], [178, 240, 232]],
    negative: [[92, 62, 34], [184, 114, 50], [252, 206, 150]],
    void: [58, 60, 62],
  },
};

const STEPS = 512;
const ramps = new Map<string, Uint8ClampedArray>();

function mix(a: RGB, b: RGB, t: number): RGB {
  return [a[0] + (b[0] - a[0]) * t, a[1] + (b[1] - a[1]) * t, a[2] + (b[2] - a[2]) * t];
}

function along(stops: RGB[], t: number): RGB {
  const place = t * (stops.length - 1);
  const i = Math.min(Math.floor(place), stops.length - 2);
  return mix(stops[i]!, stops[i + 1]!, place - i);
}

/** The colours of a scale from its lowest to its highest number: STEPS + 1 of them, three bytes each. */
function ramp(scale: Scale, theme: Theme): Uint8ClampedArray {
  const key = `${scale} ${theme}`;
  const known = ramps.get(key);
  if (known) return known;
  const { paper, positive, negative } = PALETTES[theme];
  const up = [paper, ...positive];
  const down = [paper, ...negative];
  const out = new Uint8ClampedArray(3 * (STEPS + 1));
  for (let i = 0; i <= STEPS; i++) {
    const t = scale === "sequential" ? i / STEPS : (2 * i) / STEPS - 1;
    out.set(t < 0 ? along(down, -t) : along(up, t), 3 * i);
  }
  ramps.set(key, out);
  return out;
}

/** What the colours span: 0 to the largest weight, or as far below 0 as above it. */
export function domain(scale: Scale, low: number, high: number): Domain {
  if (scale === "sequential") return [0, high > 0 ? high : 1];
  const size = Math.max(Math.abs(low), Math.abs(high)) || 1;
  return [-size, size];
}

/** Writes the colour of a number into the four bytes of a pixel. */
export type Paint = (out: Uint8ClampedArray, at: number, x: number) => void;

export function painter(scale: Scale, [low, high]: Domain, theme: Theme): Paint {
  const colours = ramp(scale, theme);
  const nothing = PALETTES[theme].void;
  return (out, at, x) => {
    const there = Number.isFinite(x);
    const from = there ? 3 * Math.round(Math.min(1, Math.max(0, (x - low) / (high - low))) * STEPS) : 0;
    const source = there ? colours : nothing;
    out[at] = source[from]!;
    out[at + 1] = source[from + 1]!;
    out[at + 2] = source[from + 2]!;
    out[at + 3] = 255;
  };
}

const spot = new Uint8ClampedArray(4);

export function colour(x: number, scale: Scale, span: Domain, theme: Theme): string {
  painter(scale, span, theme)(spot, 0, x);
  return `rgb(${spot[0]},${spot[1]},${spot[2]})`;
}

/** Black or white, whichever can be read on the colour of `x`. */
export function ink(x: number, scale: Scale, span: Domain, theme: Theme): string {
  painter(scale, span, theme)(spot, 0, x);
  const light = 0.299 * spot[0]! + 0.587 * spot[1]! + 0.114 * spot[2]!;
  return light > 140 ? "#14201f" : "#f7faf9";
}
