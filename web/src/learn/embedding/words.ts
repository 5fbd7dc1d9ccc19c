export const en = {
  say: [
    "A one-hot vector is long and says nothing about likeness. The *embedding* is a matrix `E` with a row for every token of the vocabulary and `D` columns. A one-hot vector times `E` picks out one row. So nobody multiplies: the row is looked up.",
    "The rows begin as random numbers and are trained along with everything else. Tokens that are used alike are pulled the same way, and so the angle between two rows can mean something. A single column has no name: in the first chapter we chose “red” and “sweet” ourselves, here training chose, and it did not say what.",
  ],
  small: "Take the four fruits as a vocabulary and their keys as `E`:",
  steps: [
    "The banana is the second of four, as a one-hot vector ({onehot}).",
    "Times the first column of `E`: {products} = {first}.",
    "Times every column: ({picked}). That is the banana's row ({row}), untouched.",
  ],
  live: "Here `E` has {vocabulary} rows and {width} columns. Below are the rows of the tokens in your text.",
  scaled: "This model multiplies each row by the square root of its width, {root}, so that the positions, which are added next, do not drown it. That is what you see.",
  cosines: "How alike the vectors are: cosine of their angle",
  made: "The page computes each cosine from two rows of {name}: their product divided by both lengths.",
  liveSteps: [
    "The vector of {token} is {length} long, that of {nearest} {otherLength}.",
    "Their product is {product}.",
    "Divided by both lengths it is {cosine}, the largest of all other tokens in the text.",
  ],
  size: {
    question: "The model has {parameters} parameters. Which share of them is `E` ({vocabulary} rows of {width} numbers)?",
    count: "That is how many numbers `E` has. Divide by the parameters of the whole model.",
    inverse: "That is the other way round. `E` is a part, so the share is below one.",
    other: "Multiply rows by columns, then divide by the number of all parameters. A percentage is fine, too.",
    why: "Rows times columns, divided by all parameters: in a small model much of it is vocabulary.",
  },
  nearest: {
    question: "Which of these tokens has the vector most like that of {token}? Read it from the cosines.",
    hint: "The cosine of that one is {given}. Look along the row of {token} for the largest number that is not on the diagonal.",
    why: "Its cosine, {cosine}, is the largest in the row.",
  },
};

export const zh: typeof en = {
  say: [
    "独热向量很长，却说不出谁像谁。*嵌入*是一个矩阵 `E`：词表里每个词元占一行，共有 `D` 列。独热向量乘 `E`，恰好取出其中一行。所以没有人真的去乘，直接查那一行就是了。",
    "这些行起初是随机数，同其他一切一起训练。用法相似的词元会被拉向同一边，于是两行之间的夹角可以有意义。单独一列没有名字：第一章的“红”和“甜”是我们自己选的，这里是训练选的，而它没有说明选了什么。",
  ],
  small: "把四种水果当作词表，把它们的键当作 `E`：",
  steps: [
    "香蕉是四种中的第二种，独热向量是 ({onehot})。",
    "乘 `E` 的第一列：{products} = {first}。",
    "乘每一列：({picked})。这就是香蕉那一行 ({row})，原样不动。",
  ],
  live: "这里的 `E` 有 {vocabulary} 行、{width} 列。下面是你的文字中各个词元的那几行。",
  scaled: "这个模型把每一行乘以宽度的平方根 {root}，免得接下来要加上的位置把它淹没。你看到的是乘过之后的数。",
  cosines: "向量有多像：夹角的余弦",
  made: "每个余弦都由本页从 {name} 的两行算出：乘积除以两者的长度。",
  liveSteps: [
    "{token} 的向量长 {length}，{nearest} 的长 {otherLength}。",
    "它们的乘积是 {product}。",
    "除以两者的长度，得 {cosine}，在文字的其他词元中最大。",
  ],
  size: {
    question: "模型有 {parameters} 个参数。`E`（{vocabulary} 行，每行 {width} 个数）占其中多大的份额？",
    count: "这是 `E` 的数的个数。请再除以整个模型的参数量。",
    inverse: "这是反过来除的。`E` 是一部分，所以份额小于一。",
    other: "行数乘列数，再除以全部参数的个数。写成百分数也可以。",
    why: "行数乘列数，再除以全部参数：小模型的很大一部分是词表。",
  },
  nearest: {
    question: "这些词元中，哪一个的向量最像 {token} 的？请从余弦里读出来。",
    hint: "那一个的余弦是 {given}。请沿着 {token} 那一行，找对角线以外最大的数。",
    why: "它的余弦 {cosine} 是这一行里最大的。",
  },
};
