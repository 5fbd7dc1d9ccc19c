export const en = {
  say: [
    "Attention compares every token with every other, wherever they stand. Shuffle the tokens and the same vectors come out, shuffled the same way: the order is lost. So the place of a token has to be put into its vector.",
    "The paper adds a vector `P` to each embedding. In its formula `pos` is the place of the token in the text, counted from zero, and `i` counts *pairs of columns*, not tokens. Each pair holds the sine and the cosine of one wave; from pair to pair the waves get slower. Other models learn a row for each place, or turn queries and keys instead.",
  ],
  table: "Sine and cosine positions: one row for each place",
  tableNote: "Computed from the formula, {count} places, {width} columns.",
  properties: [
    "*Unique.* The first pair turns by one radian from place to place, and no whole number of radians is a full turn, so it never comes back to where it was. Of the first {count} places no two are nearer to each other than {nearest}. It does not mean that they are easy to tell apart: neighbours have a cosine of {neighbours}.",
    "*Bounded.* All numbers lie between {low} and {high}, and every vector has the same length: the shortest {shortest}, the longest {longest}. Counting places instead would soon outgrow the embeddings. It does not mean that a model can read longer texts than it was trained on: the vector exists, but the model has never met it.",
    "*Shift-consistent.* To go {by} places further is always the same turn `R`, wherever one begins: the turned vector misses the true one by at most {missed}. So the product of two positions depends on how far apart they are and not on where they stand; over all beginnings it varies by {spread}, which is rounding.",
    "That a turn exists does not mean that the model uses it. Queries and keys are made of embedding *and* position by trained matrices, and their scores may well depend on the place. Nor does the product simply shrink with distance: it rises again at distance {rises}.",
  ],
  plot: "Product of the first position with the one so many places further",
  across: "places further",
  steps: [
    "The first pair at place {p} is sin({p}) = {sine} and cos({p}) = {cosine}.",
    "A turn by {by}: {sine} · cos({by}) + {cosine} · sin({by}) = {turned}.",
    "The first number at place {q}, straight from the formula: sin({q}) = {direct}. The same.",
  ],
  live: "What this model adds to the embeddings is just this table: the largest difference to the numbers computed here is {difference}.",
  unequal: "And what is made of it: in {path}, head {head}, the scaled scores of tokens for the one just before them reach from {lowest} to {highest}. The distance is the same each time, the scores are not.",
  sine: {
    question: "What is the first number of `P` at place {at}?",
    degrees: "That is the sine of {at} degrees. The angle is in radians.",
    cosine: "That is the cosine, the second number of the pair.",
    other: "In the first pair the divisor is one, so it is the sine of the place itself, in radians.",
    why: "The first pair has the divisor one: the sine of the place itself.",
  },
  length: {
    question: "A model is {width} wide. What is the *square* of the length of each of its position vectors? Every pair holds a sine and a cosine of one angle.",
    root: "That is the length. Its square is asked for.",
    width: "Sine squared plus cosine squared is one: how many pairs are there?",
    other: "The squares of the sine and the cosine of one angle add up to one. Count the pairs.",
    why: "Every pair contributes exactly one, so it is the number of pairs.",
  },
};

export const zh: typeof en = {
  say: [
    "注意力把每个词元同其他每个词元比较，不管它们站在哪里。把词元打乱，出来的还是那些向量，只是同样被打乱了：顺序丢失了。所以必须把词元的位置写进它的向量。",
    "论文给每个嵌入加上一个向量 `P`。公式里的 `pos` 是词元在文中的位置，从零数起；`i` 数的是*成对的列*，不是词元。每一对是同一个波的正弦和余弦，越往后的波越慢。也有模型为每个位置学一行，或者改为旋转查询和键。",
  ],
  table: "正弦余弦位置：每个位置一行",
  tableNote: "由公式算出，{count} 个位置，{width} 列。",
  properties: [
    "*唯一。*第一对每过一个位置转一弧度，而整数个弧度永远不会正好是整圈，所以它绝不会回到原处。前 {count} 个位置中，任何两个的距离都不小于 {nearest}。这并不是说它们容易分辨：相邻两个的余弦是 {neighbours}。",
    "*有界。*所有的数都在 {low} 与 {high} 之间，每个向量的长度都一样：最短 {shortest}，最长 {longest}。如果直接数位置，数很快就会比嵌入大得多。这并不是说模型能读比训练时更长的文字：向量是有的，但模型从没见过。",
    "*平移一致。*往后走 {by} 个位置，无论从哪里出发，总是同一个旋转 `R`：转过去的向量与真正的向量最多相差 {missed}。所以两个位置的乘积只取决于相距多远，与站在哪里无关；换遍所有起点，它只变动 {spread}，这是舍入误差。",
    "存在这样的旋转，不等于模型在用它。查询和键是由训练出来的矩阵从嵌入*加*位置算出的，得分完全可能与位置有关。乘积也不是单纯地随距离变小：到距离 {rises} 时它又变大了。",
  ],
  plot: "第一个位置与往后若干位的位置的乘积",
  across: "往后的位数",
  steps: [
    "位置 {p} 的第一对是 sin({p}) = {sine} 和 cos({p}) = {cosine}。",
    "转过 {by}：{sine} · cos({by}) + {cosine} · sin({by}) = {turned}。",
    "位置 {q} 的第一个数，直接由公式得：sin({q}) = {direct}。两者相同。",
  ],
  live: "这个模型加在嵌入上的正是这张表：与这里算出的数相比，最大的差是 {difference}。",
  unequal: "再看由它得出的东西：在 {path} 的第 {head} 个头里，各词元对紧挨在前的那个词元的缩放后得分，从 {lowest} 到 {highest}。每次距离都一样，得分却不一样。",
  sine: {
    question: "在位置 {at}，`P` 的第一个数是多少？",
    degrees: "这是 {at} 度的正弦。角度应以弧度计。",
    cosine: "这是余弦，是这一对的第二个数。",
    other: "第一对的除数是一，所以就是位置本身的正弦，以弧度计。",
    why: "第一对的除数是一：就是位置本身的正弦。",
  },
  length: {
    question: "某模型宽 {width}。它的每个位置向量的长度的*平方*是多少？每一对是同一个角的正弦和余弦。",
    root: "这是长度，问的是它的平方。",
    width: "正弦的平方加余弦的平方等于一：一共有多少对？",
    other: "同一个角的正弦与余弦，平方和等于一。数一数有多少对。",
    why: "每一对恰好贡献一，所以就是对数。",
  },
};
