export const en = {
  say: [
    "In the look-up of the first chapter, query, keys and values were given. A Transformer makes all three from the tokens themselves. The vector `x` of each token is multiplied by three trained matrices: `W_Q` makes its *query* (what it looks for), `W_K` its *key* (what it can be found by), `W_V` its *value* (what it hands over).",
    "The three share their input, but they are not the same: three matrices make three different vectors of one token. Queries and keys must be equally long (`d_k`), for they are multiplied with each other. Values may have another length (`d_v`).",
    "Since query and key differ, looking is not mutual: how much one token looks at another does not say how much that one looks back.",
  ],
  small: "Two tokens of two numbers each, and two small matrices:",
  token: (n: number) => `token ${n}`,
  row: (n: number) => `row ${n}`,
  steps: [
    "The query of the first token: ({x}) times `W_Q` gives ({q}).",
    "Its own key: ({x}) times `W_K` gives ({k}).",
    "The score of the first token for itself: query times key = {score}.",
  ],
  live: "Here `x` is {width} wide and there are {heads} heads. In each, a query and a key have {keyWidth} numbers and a value has {valueWidth}.",
  different: "The query and the key of {token} have a cosine of {cosine}: made from the same vector, and different.",
  mutual: "{token} scores {there} for {other}; {other} scores {back} for {token}.",
  liveSteps: [
    "The query of {token} in head {head} begins {query} …",
    "The key of {found} begins {key} …",
    "The first products: {products} …",
    "All {keyWidth} products together: {score}. The model's own score is {own}.",
  ],
  weights: {
    question: "How many numbers does `W_Q` have for *one* head of this model, without its bias?",
    all: "That is all heads together. One head makes only {keyWidth} of the numbers.",
    one: "That is the length of one vector. A matrix has as many rows as it reads numbers and as many columns as it makes.",
    other: "It reads {width} numbers and makes {keyWidth}.",
    why: "A row for every number it reads, a column for every number it makes.",
  },
  product: {
    question: "In the small example above: what is the score of the first token for the *second*, ({y})?",
    reverse: "That is the second token's query with the first token's key. It is asked the other way round.",
    self: "That is the score of the first token for itself. Use the key of the second.",
    other: "Make the key of the second token with `W_K`, then multiply it with the query of the first ({q}), place by place, and add up.",
    why: "The key of the second token is ({key2}); times the query ({q}) that is the score.",
  },
};

export const zh: typeof en = {
  say: [
    "第一章的查找里，查询、键和值都是给定的。Transformer 则从词元自身算出这三者。每个词元的向量 `x` 乘以三个训练出来的矩阵：`W_Q` 得出它的*查询*（它在找什么），`W_K` 得出它的*键*（凭什么能找到它），`W_V` 得出它的*值*（它交出什么）。",
    "三者的输入相同，但它们并不相同：三个矩阵从一个词元得出三个不同的向量。查询和键必须一样长（`d_k`），因为它们要彼此相乘；值可以是另一个长度（`d_v`）。",
    "查询与键不同，所以“看”不是相互的：一个词元多看另一个，并不说明那一个也多看它。",
  ],
  small: "两个词元，各有两个数，再加两个小矩阵：",
  token: (n) => `词元 ${n}`,
  row: (n) => `第 ${n} 行`,
  steps: [
    "第一个词元的查询：({x}) 乘 `W_Q` 得 ({q})。",
    "它自己的键：({x}) 乘 `W_K` 得 ({k})。",
    "第一个词元对自己的得分：查询乘键 = {score}。",
  ],
  live: "这里 `x` 宽 {width}，共有 {heads} 个头。每个头里，查询和键各有 {keyWidth} 个数，值有 {valueWidth} 个数。",
  different: "{token} 的查询与键的余弦是 {cosine}：出自同一个向量，却各不相同。",
  mutual: "{token} 对 {other} 的得分是 {there}；{other} 对 {token} 的得分是 {back}。",
  liveSteps: [
    "在第 {head} 个头里，{token} 的查询以 {query} 开头……",
    "{found} 的键以 {key} 开头……",
    "前几个乘积：{products}……",
    "全部 {keyWidth} 个乘积之和：{score}。模型自己的得分是 {own}。",
  ],
  weights: {
    question: "这个模型的*一个*头里，`W_Q` 有多少个数（不算偏置）？",
    all: "这是所有头加在一起。一个头只得出其中的 {keyWidth} 个数。",
    one: "这是一个向量的长度。矩阵读进多少个数就有多少行，得出多少个数就有多少列。",
    other: "它读进 {width} 个数，得出 {keyWidth} 个数。",
    why: "读进的每个数占一行，得出的每个数占一列。",
  },
  product: {
    question: "在上面的小例子里：第一个词元对*第二个*词元 ({y}) 的得分是多少？",
    reverse: "这是第二个词元的查询乘第一个词元的键，问的正好相反。",
    self: "这是第一个词元对自己的得分。请用第二个词元的键。",
    other: "先用 `W_K` 得出第二个词元的键，再与第一个词元的查询 ({q}) 逐位相乘、相加。",
    why: "第二个词元的键是 ({key2})，乘以查询 ({q}) 就是得分。",
  },
};
