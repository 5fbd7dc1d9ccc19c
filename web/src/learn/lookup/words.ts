export const en = {
  say: [
    "A dictionary in a program knows one question: is this *exactly* one of my keys? If it is, you get the value that belongs to it. If it is not, you get nothing.",
    "A *soft* look-up compares the question with every key and mixes the values: the better a key fits, the more of its value is in the answer. Question, key and value are lists of numbers, called *query*, *key* and *value*. That is all attention does.",
    "Here four fruits have a key of five features (how red, green and blue, how sweet, how sour) and a price as their value. The query is a wish in the same features. Change any number: everything below is computed again at once.",
  ],
  fruits: { apple: "apple", banana: "banana", kiwi: "kiwi", plum: "plum" },
  features: { red: "red", green: "green", blue: "blue", sweet: "sweet", sour: "sour" },
  query: "query",
  value: "price",
  dictionary: "The dictionary and the query",
  of: (what: string, feature: string) => `${what}: ${feature}`,
  restore: "As at first",
  result: "What comes out",
  score: "score",
  weight: "weight",
  part: "weight × price",
  steps: [
    "The score of a fruit is the product of query and key, feature by feature, added up: {scores}.",
    "`e` is raised to each score: {exponentials}. Together that is {sum}.",
    "Each of these divided by the sum is a weight: {weights}. Weights are never negative and add up to {whole}. The two steps together are called *softmax*.",
    "The answer is the mean of the prices with these weights: {result}.",
  ],
  notice: [
    "The query as it was at first asks for red and nothing else. It does not find the apple: apple, banana and plum all score {tie}, for yellow and purple have red in them too, and the apple gets {apple} of the weight like the two others.",
    "A query can also say what to look away from. With {away} the apple scores {awayScore} and gets {awayApple}. Three times as firm, the same wish gives it {firmApple}: a larger query makes a sharper choice.",
  ],
  equal: {
    question: "Suppose every number of the query is zero. Which price comes out of the table above?",
    zero: "A query of zeros does not give zero: it gives equal scores. What does softmax make of equal scores?",
    sum: "That is the sum of the prices. The weights add up to one, so each price counts by its share.",
    other: "All scores are zero then, so all weights are equal. Take the mean of the four prices as they stand in the table now.",
    why: "Equal scores give equal weights, and the answer is the plain mean.",
  },
  apple: {
    question: "Change the query in the table until the weight of the apple is above {goal}, then press the button.",
    hint: "Its weight is {weight} now. Ask for red, look away from green and blue, and make the numbers larger.",
    why: "The query now fits the apple's key far better than the others, and its size makes the choice sharp.",
  },
  live: [
    "In the model nobody wrote the keys: they come out of its weights, as the chapter on query, key and value shows. The look-up is the same. The query of {token} is compared with {count} keys; the best score is {best}, that of {found}, and it gets {share} of the weight.",
    "Shaded by weight, what {token} looks up:",
  ],
};

export const zh: typeof en = {
  say: [
    "程序里的字典只回答一个问题：这*正好*是我的某个键吗？是，就给出对应的值；不是，就什么也没有。",
    "*软*查找把问题同每一个键比较，再把值混合起来：键越合适，它的值在答案里占得越多。问题、键和值都是一串数，分别叫作*查询*（query）、*键*（key）和*值*（value）。注意力所做的就是这件事。",
    "这里有四种水果，键是五个特征（多红、多绿、多蓝、多甜、多酸），值是价格。查询就是用同样的特征写下的愿望。改动任何一个数，下面的一切都会立刻重算。",
  ],
  fruits: { apple: "苹果", banana: "香蕉", kiwi: "猕猴桃", plum: "李子" },
  features: { red: "红", green: "绿", blue: "蓝", sweet: "甜", sour: "酸" },
  query: "查询",
  value: "价格",
  dictionary: "字典与查询",
  of: (what, feature) => `${what}：${feature}`,
  restore: "恢复原样",
  result: "查到的结果",
  score: "得分",
  weight: "权重",
  part: "权重 × 价格",
  steps: [
    "水果的得分是查询与键逐个特征相乘再相加：{scores}。",
    "以 `e` 为底取每个得分的幂：{exponentials}，总和是 {sum}。",
    "每个幂除以总和就是权重：{weights}。权重不会是负数，加起来是 {whole}。这两步合称 *softmax*。",
    "答案是按这些权重求的平均价格：{result}。",
  ],
  notice: [
    "最初的查询只要红色，别的都不管。它并没有找到苹果：苹果、香蕉和李子的得分都是 {tie}，因为黄色和紫色里也有红，苹果得到的权重和另外两个一样，是 {apple}。",
    "查询也可以说明要避开什么。用 {away} 来查，苹果的得分是 {awayScore}，权重是 {awayApple}。同样的愿望强烈到三倍，权重就是 {firmApple}：查询的数越大，选择越分明。",
  ],
  equal: {
    question: "假设查询的每个数都是零。上面的表会给出什么价格？",
    zero: "全零的查询给出的不是零，而是相等的得分。softmax 会把相等的得分变成什么？",
    sum: "这是价格的总和。权重加起来是一，所以每个价格只按自己的份额计算。",
    other: "这时所有得分都是零，所以权重都相等。请对表中现在的四个价格求平均。",
    why: "得分相等，权重就相等，答案就是普通的平均数。",
  },
  apple: {
    question: "修改表中的查询，让苹果的权重超过 {goal}，然后按下按钮。",
    hint: "它现在的权重是 {weight}。去要红色，避开绿色和蓝色，并把数写得大一些。",
    why: "现在查询与苹果的键远比与其他的键合适，而它的大小让选择分明。",
  },
  live: [
    "在模型里，键不是谁写下来的，而是由它的权重算出来的，“查询、键、值”一章会讲到。查找的办法却是一样的。{token} 的查询同 {count} 个键比较，最好的得分是 {best}，属于 {found}，它得到 {share} 的权重。",
    "按权重着色，{token} 查到的是：",
  ],
};
