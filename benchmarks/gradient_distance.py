"""The norm of a gradient against the distance it has come: plain RNN, LSTM, GRU and Transformer, fresh and of one width.

python benchmarks/gradient_distance.py --out gradients        writes gradients.csv and gradients.svg
"""

import argparse
import csv
from pathlib import Path

from glassformer import charts
from glassformer.distance import norms_by_distance

MODELS = {
    "plain RNN": {"kind": "rnn", "cell": "plain"},
    "LSTM": {"kind": "rnn", "cell": "lstm"},
    "GRU": {"kind": "rnn", "cell": "gru"},
    "Transformer": {"kind": "gpt"},
}
SHOWN = (0, 1, 5, 10, 20, 50, 99)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path, default=Path("gradients"), help="files to write, without their endings")
    parser.add_argument("--length", type=int, default=100)
    parser.add_argument("--width", type=int, default=128)
    arguments = parser.parse_args()
    found = norms_by_distance(MODELS, length=arguments.length, width=arguments.width)
    with open(arguments.out.with_suffix(".csv"), "w", encoding="utf-8", newline="") as file:
        writer = csv.writer(file, lineterminator="\n")
        writer.writerow(["distance", *found])
        writer.writerows([d, *(f"{norms[d]:.3e}" for norms in found.values())] for d in range(arguments.length))
    lines = [charts.Line(name, list(enumerate(norms))) for name, norms in found.items()]
    chart = charts.Chart("Gradient and distance", "tokens before the last", "norm of the gradient", lines, log=True)
    arguments.out.with_suffix(".svg").write_text(charts.svg([chart]), encoding="utf-8")
    print(f"{'distance':12}" + "".join(f"{d:>10}" for d in SHOWN if d < arguments.length))
    for name, norms in found.items():
        print(f"{name:12}" + "".join(f"{norms[d]:>10.1e}" for d in SHOWN if d < arguments.length))


if __name__ == "__main__":
    main()
