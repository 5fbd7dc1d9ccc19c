export const en = {
  say: [
    "One look-up gives each token one mixture. But a word may need its verb, its neighbour and the beginning of the sentence all at once. So there are several *heads*: each has its own `W_Q`, `W_K` and `W_V` and looks for itself, all at the same time.",
    "The heads share out the width of the model: in the paper {paperWidth} numbers over {paperHeads} heads, {paperSize} each. So they cost hardly more than a single head of full width.",
    "In the end the results stand side by side, as wide as the model again, and `W_O` mixes them. It is not the mean of the heads: `W_O` decides what is taken from each.",
    "What a head looks for was not told to it. Some heads can be described (“the token before”), many cannot, and a strong weight does not yet prove that the token mattered.",
  ],
  live: "This layer has {heads} heads with values of {valueWidth} numbers, side by side {joined}. Below, each row is one head, and the columns are what {token} looks at.",
  map: "Where each head looks from the chosen token",
  mapNote: "Each row is the row of {token} in {path}.pattern of one head. It adds up to one.",
  summary: "Each head at a glance",
  head: (n: number) => `head ${n}`,
  most: "looks most at",
  weight: "weight",
  spread: "entropy",
  beside: "The heads side by side, as `W_O` reads them:",
  arcs: "The chosen token in the chosen head, as lines",
  steps: [
    "Head {sharpest} is the sharpest here: {sharpestWeight} of its weight is on {sharpestToken}.",
    "Its entropy, minus the sum of each weight times its logarithm, is {sharpestEntropy}. With equal weights it would be {evenEntropy}, with all weight on one token zero.",
    "Head {widest} spreads the widest, with an entropy of {widestEntropy}.",
  ],
  width: {
    question: "How many numbers of one token stand side by side before `W_O`, from all heads of this layer?",
    one: "That is one head. There are {heads} of them.",
    other: "Each of the {heads} heads gives {valueWidth} numbers.",
    why: "Heads times the width of a value.",
  },
  sharpest: {
    question: "Choose the token {hard} above. Which head is then the sharpest (smallest entropy)?",
    hint: "From {hard}, that head has an entropy of {given}, which is not the smallest. Read the last column of the table after you have chosen {hard}.",
    why: "Its entropy is the smallest: {least}.",
  },
};

export const zh: typeof en = {
  say: [
    "一次查找只给每个词元一份混合。可是一个词也许同时需要它的动词、它的邻居和句子的开头。所以有好几个*头*：每个头有自己的 `W_Q`、`W_K` 和 `W_V`，各看各的，同时进行。",
    "各个头分享模型的宽度：论文里是 {paperWidth} 个数分给 {paperHeads} 个头，每个 {paperSize}。所以它们并不比一个全宽的头费多少计算。",
    "最后把各头的结果并排放好，又和模型一样宽，再由 `W_O` 混合。这不是对各头求平均：从每个头取什么，由 `W_O` 决定。",
    "头要找什么，没有人告诉它。有的头说得清（“前一个词元”），许多说不清；权重大，也还不能证明那个词元真的起了作用。",
  ],
  live: "这一层有 {heads} 个头，每个头的值有 {valueWidth} 个数，并排共 {joined} 个。下面每一行是一个头，各列是 {token} 所看的词元。",
  map: "从所选词元出发，每个头看哪里",
  mapNote: "每一行取自一个头的 {path}.pattern 中 {token} 那一行，加起来是一。",
  summary: "各头一览",
  head: (n) => `第 ${n} 个头`,
  most: "最看重",
  weight: "权重",
  spread: "熵",
  beside: "并排的各头，也就是 `W_O` 所读的：",
  arcs: "所选词元在所选的头里，画成线",
  steps: [
    "这里第 {sharpest} 个头最集中：{sharpestWeight} 的权重在 {sharpestToken} 上。",
    "它的熵，即每个权重乘其对数之和取负，是 {sharpestEntropy}。权重全部相等时是 {evenEntropy}，全在一个词元上时是零。",
    "第 {widest} 个头最分散，熵是 {widestEntropy}。",
  ],
  width: {
    question: "在 `W_O` 之前，一个词元来自这一层所有头的数，并排共有多少个？",
    one: "这是一个头的。一共有 {heads} 个头。",
    other: "{heads} 个头，每个头给出 {valueWidth} 个数。",
    why: "头数乘值的宽度。",
  },
  sharpest: {
    question: "在上面选词元 {hard}。这时哪个头最集中（熵最小）？",
    hint: "从 {hard} 出发，那个头的熵是 {given}，不是最小的。选好 {hard} 之后，请看表的最后一列。",
    why: "它的熵最小：{least}。",
  },
};
