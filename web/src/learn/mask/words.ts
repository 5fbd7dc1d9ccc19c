export const en = {
  say: [
    "A model that writes one token after the other must not look at what it has not written yet. In training the whole text is there at once; so what comes later has to be hidden. That is the *mask*: the score of every hidden place is replaced by minus infinity before softmax.",
    "Why minus infinity and not zero? `e` to the minus infinity is exactly zero, so a hidden token gets no weight, and those that remain still add up to one. A score of zero would be a score like any other.",
    "The token at each place then gets a weighted mean of itself and what came before.",
  ],
  table: "今天天气很好: how much each character (row) takes from each (column)",
  sum: "sum",
  about: "An example of such weights, as one might make them up by hand. The third row says: the second 天 is {own} itself and {each} each of the two characters before it. All {hidden} places above the diagonal are zero.",
  wrong: "One row does not add up to one, so it is no weighted mean. Softmax cannot produce such a row. Which one it is, you find in the exercise; divided by its sum it would be right again.",
  live: "In your model: {open} of {all} places are open, the other {closed} are minus infinity. After softmax they are zero, and every row adds up to {rowSum}.",
  try: "Trace 今天天气很好",
  steps: [
    "{token} is at place {place}, so it may look at {may} of {count} tokens.",
    "Its scaled scores: {scores}.",
    "After the mask: {masked}.",
    "After softmax: {weights}.",
  ],
  long: "Of these, the first {shown} are written out.",
  row: {
    question: "Which row of the table above is not a weighted mean?",
    option: (n: number, character: string) => `${n}: ${character}`,
    hint: "That row adds up to {given}. A weighted mean needs weights that add up to one.",
    why: "It adds up to {wrongSum}.",
  },
  share: {
    question: "Divide that row by its sum. Which weight does the last character then give to itself?",
    before: "That is the weight as it stands. Divide it by the sum of the row.",
    other: "Its own weight is the last of the row; divide it by what the row adds up to.",
    why: "Its own weight divided by the sum of the row.",
  },
  open: {
    question: "A text has as many tokens as yours, {count}. How many places of the square table are open under a causal mask?",
    all: "That is the whole table. Half of it, but for the diagonal, is hidden.",
    strict: "Without the diagonal: but a token may look at itself.",
    other: "The first token may look at one, the second at two, and so on. Add them up.",
    why: "One, two, three and so on, up to the number of tokens.",
  },
};

export const zh: typeof en = {
  say: [
    "一个一个写出词元的模型，不许看还没写出来的东西。训练时整段文字都在眼前，所以必须把后面的遮住。这就是*掩码*：在 softmax 之前，把每个要遮住的位置的得分换成负无穷。",
    "为什么是负无穷而不是零？`e` 的负无穷次幂恰好是零，所以被遮住的词元得不到权重，剩下的加起来仍然是一。得分为零则与别的得分没有两样。",
    "这样，每个位置的词元得到的，是它自己和前面各词元的加权平均。",
  ],
  table: "今天天气很好：每个字（行）从每个字（列）取多少",
  sum: "和",
  about: "这是手工编出的一个权重的例子。第三行说：第二个“天”有 {own} 是它自己，前面两个字各占 {each}。对角线以上的 {hidden} 处都是零。",
  wrong: "有一行加起来不是一，所以它不是加权平均，softmax 也不可能给出这样的一行。是哪一行，请在练习中找；把它除以自己的和就对了。",
  live: "在你的模型里：{all} 处中有 {open} 处可以看，其余 {closed} 处是负无穷。经过 softmax，它们都是零，每一行加起来是 {rowSum}。",
  try: "计算“今天天气很好”",
  steps: [
    "{token} 在第 {place} 位，所以它可以看 {count} 个词元中的 {may} 个。",
    "它的缩放后得分：{scores}。",
    "加掩码之后：{masked}。",
    "softmax 之后：{weights}。",
  ],
  long: "这里只写出前 {shown} 个。",
  row: {
    question: "上表的哪一行不是加权平均？",
    option: (n, character) => `${n}：${character}`,
    hint: "那一行加起来是 {given}。加权平均要求权重加起来是一。",
    why: "它加起来是 {wrongSum}。",
  },
  share: {
    question: "把那一行除以它的和。之后，最后一个字给自己的权重是多少？",
    before: "这是原来的权重。请除以这一行的和。",
    other: "它给自己的权重是这一行的最后一个数，除以这一行的和。",
    why: "自己的权重除以这一行的和。",
  },
  open: {
    question: "一段文字同你的一样有 {count} 个词元。在因果掩码下，方表中有多少处可以看？",
    all: "这是整张表。除去对角线，有一半是遮住的。",
    strict: "这没有算对角线，而词元可以看自己。",
    other: "第一个词元可以看一个，第二个看两个，以此类推，再加起来。",
    why: "一、二、三……一直加到词元的个数。",
  },
};
