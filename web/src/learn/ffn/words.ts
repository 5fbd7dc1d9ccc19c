export const en = {
  say: [
    "Attention moves things from token to token. The *feed-forward* layer then works on each token by itself, with the same weights at every place: it looks at no other token.",
    "It makes the vector wider with `W_1`, bends it with an activation, and makes it narrow again with `W_2`. Without the bend the two matrices would be one matrix, and nothing would be gained. *ReLU* bends by cutting off: what is negative becomes zero. *GELU* and *SiLU* do so gently and let a little of the negative through.",
    "One may read it as a memory: each of the `F` places within asks the vector a question with its column of `W_1`, and if the answer is positive, it adds its row of `W_2`. What comes out is added to the *input* of this layer, as in the chapter before.",
  ],
  steps: [
    "A small layer without biases: ({x}) times `W_1` gives ({pre}).",
    "ReLU: ({act}).",
    "Times `W_2`: ({out}).",
    "Added to the input: ({sum}).",
  ],
  row: (n: number) => `row ${n}`,
  live: "In the first block of this model the layer goes from {width} to {inner} numbers and back. Of all numbers before the activation, {negative} are negative.",
  gated: "Its activation is SwiGLU: the bent numbers are multiplied by a second set, the gate, made by a third matrix `W_3`.",
  curve: "The activation of this model",
  curveGated: "SiLU, the bend within SwiGLU, before the gate is multiplied in",
  across: "before the activation",
  liveSteps: [
    "For {token}, place {place} of {inner}, counted from zero, has the largest number after the activation.",
    "Before it: {before}.",
    "After it: {after}. The page, computing the activation itself, gets {again}.",
  ],
  gateStep: "Its gate: {gate}.",
  relu: {
    question: "The small layer above, and then the residual, with ({asked}) going in: what is the first number that comes out?",
    noResidual: "That is what the layer gives. Its input is added to it.",
    noBend: "You left out ReLU: what is negative becomes zero before `W_2`.",
    other: "Times `W_1`, cut off what is negative, times `W_2`, then add the input.",
    why: "Within: ({askedAct}). Out: ({askedOut}), and the input added to it.",
  },
  weights: {
    question: "How many numbers do the matrices of this layer have together, without biases?",
    one: "That is one of them. There are {matrices}.",
    two: "That is two of them. SwiGLU has three.",
    other: "Each has {width} times {inner} numbers, and there are {matrices}.",
    why: "{matrices} matrices of {width} times {inner}. A good part of a Transformer's weights is here.",
  },
};

export const zh: typeof en = {
  say: [
    "注意力把东西从一个词元搬到另一个词元。接下来的*前馈网络*则单独处理每个词元，每个位置都用同样的权重：它不看别的词元。",
    "它用 `W_1` 把向量变宽，用激活函数折一下，再用 `W_2` 变窄。没有这一折，两个矩阵就等于一个矩阵，什么也没多出来。*ReLU* 的折法是截断：负数变成零。*GELU* 和 *SiLU* 折得柔和，会放过一点点负数。",
    "也可以把它看作记忆：内层 `F` 个位置，各用 `W_1` 的一列向这个向量提一个问题，如果回答是正的，就加上 `W_2` 的相应一行。得出的结果再加到这一层的*输入*上，同上一章一样。",
  ],
  steps: [
    "一个没有偏置的小网络：({x}) 乘 `W_1` 得 ({pre})。",
    "ReLU：({act})。",
    "乘 `W_2`：({out})。",
    "加上输入：({sum})。",
  ],
  row: (n) => `第 ${n} 行`,
  live: "在这个模型的第一层里，前馈网络从 {width} 个数变到 {inner} 个数再变回来。激活之前的所有数中，{negative} 是负的。",
  gated: "它的激活是 SwiGLU：折过的数再乘以另一组数，即门，由第三个矩阵 `W_3` 得出。",
  curve: "这个模型的激活函数",
  curveGated: "SiLU，即 SwiGLU 里的那一折，尚未乘以门",
  across: "激活之前",
  liveSteps: [
    "对 {token} 来说，{inner} 个位置中第 {place} 个（从零数起）在激活之后的数最大。",
    "激活之前：{before}。",
    "激活之后：{after}。本页自己计算激活函数，得到 {again}。",
  ],
  gateStep: "它的门：{gate}。",
  relu: {
    question: "用上面的小网络，再做残差，进来的是 ({asked})：出来的第一个数是多少？",
    noResidual: "这是网络给出的，还要加上它的输入。",
    noBend: "你漏了 ReLU：乘 `W_2` 之前，负数要变成零。",
    other: "乘 `W_1`，截掉负数，乘 `W_2`，再加上输入。",
    why: "内层：({askedAct})。给出：({askedOut})，再加上输入。",
  },
  weights: {
    question: "这一层前馈网络的各个矩阵一共有多少个数（不算偏置）？",
    one: "这是其中一个的。一共有 {matrices} 个矩阵。",
    two: "这是其中两个的。SwiGLU 有三个矩阵。",
    other: "每个矩阵有 {width} 乘 {inner} 个数，一共有 {matrices} 个矩阵。",
    why: "{matrices} 个矩阵，各有 {width} 乘 {inner} 个数。Transformer 的权重有很大一部分在这里。",
  },
};
