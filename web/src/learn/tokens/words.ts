export const en = {
  say: [
    "A model computes with numbers, so a text is first cut into *tokens*: words, pieces of words, single characters. Every token has a number, its *id*: its place in the list of all tokens, the *vocabulary*.",
    "An id is a name, not a size. That one id is larger than another says nothing about the words, and tokens with neighbouring ids need not have anything in common. So a token becomes a *one-hot* vector: as long as the vocabulary, all zeros, and a single one at the place of its id.",
    "Now every token has a direction of its own. Any two different tokens are equally far apart ({distance}, the square root of two), and their product is {product}. Nothing is claimed about meaning, neither right nor wrong. Saying something about it is the task of the next chapter.",
  ],
  live: "Your text is {count} tokens of a vocabulary of {vocabulary}. Written as one-hot vectors they are {numbers} numbers, of which {zeros} are zero.",
  cut: "Tokens and their ids",
  matrix: "One-hot vectors",
  only: "Drawn are only the columns of ids that occur in the text. All others are zero in every row.",
  steps: [
    "The token {token} has the id {id}.",
    "Its vector has {vocabulary} numbers; the one at place {id} is {one}, all others are {nought}.",
    "Multiplied with itself, place by place and added up, it gives {same}.",
  ],
  sameToken: "Multiplied with the vector of {other}, it gives {apart}: it is the same token.",
  otherToken: "Multiplied with the vector of {other}, it gives {apart}: no place is set in both.",
  zeros: {
    question: "How many zeros does the one-hot vector of one token of this model have?",
    all: "That is how long the vector is. One place is not zero.",
    text: "The vector is as long as the vocabulary, not as the text.",
    other: "The vector has one place for each token of the vocabulary, and all but one are zero.",
    why: "All places of the vocabulary but one.",
  },
  distance: {
    question: "Add the one-hot vectors of two different tokens. How far is that sum from the vector of a third token?",
    two: "That is the distance between two single tokens. Here three places differ.",
    square: "That is the square of the distance. Take the root.",
    other: "The difference has a one or a minus one at three places. Square them, add them up, take the root.",
    why: "Three places differ by one each: the square root of three.",
  },
};

export const zh: typeof en = {
  say: [
    "模型只会算数，所以文字先要切成*词元*（token）：词、词的一部分，或者单个字。每个词元有一个编号（*id*）：它在全部词元的清单，也就是*词表*里的位置。",
    "编号是名字，不是大小。一个编号比另一个大，并不说明这两个词有什么关系；编号相邻的词元也未必有共同之处。所以词元要变成*独热*（one-hot）向量：长度等于词表，处处是零，只在它的编号处有一个一。",
    "这样，每个词元都有自己的方向。任何两个不同的词元距离都相等（{distance}，即二的平方根），乘积都是 {product}。它对意义什么也没说，既不对也不错。说出意义，是下一章的事。",
  ],
  live: "你的文字有 {count} 个词元，词表有 {vocabulary} 个。写成独热向量，一共是 {numbers} 个数，其中 {zeros} 个是零。",
  cut: "词元及其编号",
  matrix: "独热向量",
  only: "只画出文字中出现的编号所在的列，其余各列在每一行都是零。",
  steps: [
    "词元 {token} 的编号是 {id}。",
    "它的向量有 {vocabulary} 个数：第 {id} 位是 {one}，其余都是 {nought}。",
    "它同自己逐位相乘再相加，得 {same}。",
  ],
  sameToken: "它同 {other} 的向量相乘，得 {apart}：那是同一个词元。",
  otherToken: "它同 {other} 的向量相乘，得 {apart}：没有哪一位两边都不是零。",
  zeros: {
    question: "在这个模型里，一个词元的独热向量有多少个零？",
    all: "这是向量的长度。有一位不是零。",
    text: "向量的长度等于词表，而不是文字的长度。",
    other: "词表里每个词元占一位，除了一位，其余都是零。",
    why: "词表的每一位，减去一位。",
  },
  distance: {
    question: "把两个不同词元的独热向量相加，这个和与第三个词元的向量相距多远？",
    two: "这是两个单独词元之间的距离。这里有三位不同。",
    square: "这是距离的平方，请再开方。",
    other: "相减之后有三位是一或负一。平方，相加，再开方。",
    why: "有三位各差一：三的平方根。",
  },
};
