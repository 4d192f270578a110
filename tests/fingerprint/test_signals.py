"""Signals: what the words of a turn say about reusing its answer."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fingerprint.chat import turn_from_messages
from fingerprint.signals import Signals, signals_of

DATA = Path(__file__).parents[2] / ".." / "shared" / "data" / "families"
STATED = "The warehouse sends it within two days."
ASKED = "The warehouse sends it within two days. Shall I book it for you?"


def read(text: str, *, before: str | None = None, question: str = "How does it work?") -> Signals:
    history = (
        [] if before is None else [{"role": "user", "content": question}, {"role": "assistant", "content": before}]
    )
    return signals_of(turn_from_messages([*history, {"role": "user", "content": text}]))


CORRECTIONS = [
    "No, I meant the blue one.",
    "no i meant monday",
    "That's not what I asked.",
    "that is wrong",
    "That's incorrect, try again.",
    "never mind",
    "Never mind, I found it.",
    "nvm",
    "Forget it.",
    "forget what I said",
    "Scratch that, use the second plan.",
    "Actually, use Postgres.",
    "actually let's go with B",
    "Sorry, I meant 50 not 15.",
    "I said Tuesday.",
    "You misunderstood me.",
    "No, not that one.",
    "Wrong.",
    "wrong, I have the older model",
    "I changed my mind",
    "Not the first one, the second.",
    "Oh wait, I gave you the wrong number",
    "Use SQLite instead.",
    "Could you do it in Rust instead?",
    "on second thought, keep it",
    "No. The one in the north.",
    "I mean the return flight",
    "yes, but make it two",
    "Ignore my previous message",
    "you're wrong",
    "No — that's the old price",
    "Your answer is wrong",
    "that doesn't answer my question",
    "Correction: it is 40 km.",
    "不对，我是说第二个",
    "不是，我问的是退款",
    "我的意思是换尺码",
    "算了",
    "算了，不退了",
    "你理解错了",
    "你说错了",
    "不对",
    "换成蓝色的",
    "改成明天吧",
    "我说错了，是三号楼",
    "哦不对，应该是五个人",
    "答非所问",
    "不是这个",
    "你没听懂",
    "当我没说",
    "我改主意了",
    "抱歉，我指的是苹果公司",
    "这不对吧",
    "错了，重来",
    "其实我要的是年付",
    "That isn't what I meant",
    "No no, the other one",
    "Hmm, that's not it",
    "You got that wrong",
    "I was asking about shoes",
    "Not what I wanted",
    "Oops, I meant Kyoto",
    "Sorry, wrong city: I meant Lyon",
    "My mistake, it's 30 people",
    "my bad, I meant the north",
    "Let me rephrase: how long?",
    "wait, no. the second",
    "Hang on, that's wrong",
    "That can't be right",
    "Actually no",
    "actually, no, keep it",
    "Actually make that three",
    "Let's do B instead",
    "Use the other one instead",
    "I'd rather have tea",
    "Change it to Friday",
    "make that two",
    "Stop, that's the wrong file",
    "no, in Celsius",
    "No. In Python 3 please",
    "Nope, still the old one",
    "I don't want that any more",
    "I didn't mean that",
    "that was not my question",
    "This is not correct",
    "Please disregard my last message",
    "I take that back",
    "Undo that",
    "Forget about the discount",
    "Instead, use Rust",
    "Rather than A, use B",
    "No, you've got the wrong person",
    "It's not Monday, it's Tuesday",
    "you forgot the tax",
    "I asked for three, not two",
    "No, it's the other way round",
    "No, that is not the case",
    "wrong answer",
    "Not Paris, Texas. Paris, France.",
    "no not that",
    "hmm no, I want the cheaper one",
    "I said without sugar!",
    "不不不，是另一个",
    "我不是这个意思",
    "不是这个意思",
    "你搞错了",
    "搞错了，是北京",
    "说反了",
    "等等，我要的是红色的",
    "我刚才说错了",
    "更正一下，是8号",
    "打错了，应该是2019年",
    "别，还是原来那个",
    "先别管那个",
    "撤回刚才的话",
    "取消刚才的",
    "这不是我问的",
    "不是说这个",
    "我没问这个",
    "换一个，用Java写",
    "改用Python",
    "不要了",
    "那不对啊",
    "错啦",
    "你答错了",
    "不对不对",
    "我问的不是这个",
    "我问的是苹果手机不是水果",
    "不是让你翻译",
    "没让你写这个",
    "刚才那个不算",
    "不，我要两张",
    "还是算了",
    "嗯不对，是下周三",
    "搞混了，我说的是另一家",
    "你弄错人了",
    "我要的不是这个",
    "说的不是这个",
    "不是A，是B",
    "刚才说错，是三个人",
    "前面那个问题忽略",
]

NO_CORRECTIONS = [
    "Why is there no log?",
    "There is no file like that.",
    "No problem, what is next?",
    "no thanks",
    "Is that not allowed?",
    "What does it mean if nothing is wrong?",
    "Actually, how does that work?",
    "Actually I have another question.",
    "how much to add a suitcase, no wait, two suitcases?",
    "Book for two, sorry, I meant three people.",
    "Can I use B instead of A?",
    "What happens if I use tabs instead of spaces?",
    "I never received it.",
    "not yet",
    "How do I undo that?",
    "It says wrong password.",
    "How do I cancel my order?",
    "What if I change my mind?",
    "Noted. And the second?",
    "Nothing happens when I click.",
    "I did not get a mail.",
    "the password is wrong, what do I do?",
    "Now what?",
    "No-show fee?",
    "Which one is not included?",
    "Say it in other words.",
    "make it shorter",
    "and the other one?",
    "Yes, take the later one instead.",
    "为什么没有日志？",
    "密码输错了怎么办",
    "怎么把蓝色换成红色？",
    "这个不能退吗",
    "我没收到短信",
    "不明白，能再说一遍吗",
    "是不是不用交钱",
    "没有了，谢谢",
    "不用谢",
    "能改成明天吗？",
    "对不起这个词怎么翻译",
    "要两张，算了，三张吧",
    "系统提示错误怎么处理",
    "不是降价了吗",
    "换成泰国是多少钱",
]


@pytest.mark.parametrize("text", CORRECTIONS)
def test_a_denial_repair_withdrawal_or_change_is_a_correction(text: str) -> None:
    assert read(text, before=STATED).correction


@pytest.mark.parametrize("text", NO_CORRECTIONS)
def test_ordinary_negation_and_self_repair_are_not(text: str) -> None:
    assert not read(text, before=STATED).correction


@pytest.mark.parametrize("text", [*CORRECTIONS, *NO_CORRECTIONS])
def test_where_nothing_was_answered_there_is_nothing_to_correct(text: str) -> None:
    assert not read(text).correction


@pytest.mark.parametrize(
    "text", ["No.", "no, tomorrow is fine", "nope", "不是", "不用了", "不，自己来", "No, leave it as it is"]
)
def test_no_to_a_question_is_an_answer_and_to_a_statement_a_denial(text: str) -> None:
    asked = "要帮您预约吗？" if not text.isascii() else ASKED
    assert not read(text, before=asked).correction
    assert read(text, before=STATED).correction


@pytest.mark.parametrize("text", ["No, I meant the other one", "不是，我是说下周", "never mind", "算了"])
def test_a_repair_or_withdrawal_is_one_even_after_a_question(text: str) -> None:
    assert read(text, before=ASKED).correction


@pytest.mark.parametrize(
    "text",
    [
        "What's the weather in Oslo?",
        "weather today",
        "Who is the current president of France?",
        "What time is it in Lima?",
        "What is the latest version of Node?",
        "Did anyone score last night?",
        "bitcoin price",
        "Is the museum open today?",
        "What is the euro to dollar exchange rate right now?",
        "Any news about the strike this morning?",
        "current mortgage rates",
        "who is the prime minister of Japan now?",
        "What should I wear tomorrow?",
        "Which films come out next week?",
        "will it rain in Leeds this weekend",
        "what is today's date",
        "What's the stock price of that company?",
        "今天天气怎么样",
        "现在几点了",
        "最新的版本是多少",
        "美元汇率是多少",
        "明天会下雨吗",
        "现在的总统是谁",
        "昨晚的比赛结果如何，谁赢了",
        "今天星期几",
        "目前油价多少",
        "这周有什么电影",
        "北京现在多少度",
        "Who won the election?",
        "How much is a Bitcoin worth?",
        "Is it raining in Rome?",
        "Are there any delays on the northern line?",
        "When is the next train to Oxford?",
        "what's happening in Ukraine",
        "Who is the CEO of Apple?",
        "Tesla stock price",
        "What are today's headlines?",
        "how many days until Christmas?",
        "what year is it",
        "What's new in Python?",
        "is Netflix down right now",
        "current temperature",
        "When does the sun set today?",
        "Which day of the week is it?",
        "what's the score?",
        "Is the shop open now?",
        "how old is Madonna",
        "gas prices",
        "What's the inflation rate currently?",
        "who's the president of the US",
        "What's the date tomorrow",
        "What day is today?",
        "Give me the news",
        "how's the traffic to the airport",
        "What's on TV tonight",
        "price of ETH",
        "dollar to yen",
        "EUR/USD rate",
        "temperature in Berlin now",
        "Who is leading the Premier League?",
        "what's the current mortgage rate?",
        "现在美国总统是谁",
        "今年春节是几号",
        "离圣诞节还有几天",
        "苹果股票多少钱",
        "今天有什么新闻",
        "最近有什么好看的电影",
        "现在黄金价格",
        "外面冷吗",
        "今天限号多少",
        "明天几点日出",
        "现在是几月",
        "今天农历多少",
        "北京时间几点",
        "现在开门了吗",
        "下一班地铁几点",
        "比特币现在多少钱",
        "谁赢了昨天的比赛",
        "美国现任总统是谁",
        "人民币兑美元汇率",
        "上海天气",
        "iPhone最新款是哪个",
        "今日金价",
        "现在几月几号",
        "当前气温",
        "目前的利率是多少",
    ],
)
def test_what_is_true_only_now_is_time_sensitive(text: str) -> None:
    assert read(text).time_sensitive


@pytest.mark.parametrize(
    "text",
    [
        "In which year did people first land on the moon?",
        "What is the current directory in bash?",
        "How do I get the latest commit?",
        "I bought it yesterday and it is broken. Can I return it?",
        "What does 'as of today' mean?",
        "When did the war end?",
        'Translate "What is the weather today?" into German',
        "How do weather forecasts work?",
        "What was the price of gold in 1980?",
        "How do I update to the latest version?",
        "Now, how do I sort a list?",
        "By when do I have to pay at the latest?",
        "Explain `date +%F` and `now()`",
        "From now on answer in French. What is a monad?",
        "How is a currency exchange rate set?",
        "Now that it works, how do I deploy it?",
        "docker pull nginx:latest does nothing",
        "How long is a day on Mars?",
        "人类第一次登月是哪一年？",
        "怎么查看当前目录",
        "昨天买的耳机坏了，能退吗",
        "“今天天气”用英语怎么说",
        "天气预报的原理是什么",
        "git怎么回到最新的提交",
        "现在我想学做菜，从哪里开始",
    ],
)
def test_a_word_of_time_does_not_make_a_question_time_sensitive(text: str) -> None:
    assert not read(text).time_sensitive


def test_a_short_question_after_one_about_now_is_about_now_too() -> None:
    weather = "What is the weather in Oslo today?"
    assert read("And in Bergen?", before=STATED, question=weather).time_sensitive
    assert read("上海呢", before=STATED, question="今天北京天气怎么样").time_sensitive
    assert not read("And in Bergen?", before=STATED).time_sensitive
    assert not read(
        "How many people live in the largest city of Norway?", before=STATED, question=weather
    ).time_sensitive


@pytest.mark.parametrize(
    "text",
    [
        "What's my balance?",
        "Where is my order?",
        "Has my parcel been shipped yet?",
        "check the status of my refund",
        "show my bookings",
        "How much do I owe?",
        "When is my appointment?",
        "how many vacation days do I have left",
        "Do I have any meetings on Friday?",
        "What is my name?",
        "coffee near me",
        "What did I order last?",
        "my package hasn't arrived",
        "我的订单到哪了",
        "查一下我的余额",
        "我还有多少积分",
        "我的快递怎么还没到",
        "我叫什么名字",
        "我附近有什么药店",
        "帮我查下我的退款进度",
        "我这个月流量还剩多少",
        "What is the status of my application?",
        "Am I on the list?",
        "Did my payment go through?",
        "How many points do I have?",
        "What's on my calendar?",
        "What's my order number",
        "when does my subscription renew",
        "What plan am I on?",
        "Is my card blocked?",
        "Why was I charged twice?",
        "what's my IP address",
        "Where do I live?",
        "How old am I?",
        "What did we talk about yesterday?",
        "What are my test results",
        "list my open tickets",
        "have I been charged",
        "my balance",
        "My order?",
        "order status please",
        "my orders",
        "When does my contract end?",
        "How much money do I have?",
        "What are my upcoming appointments?",
        "我的余额",
        "我的余额是多少",
        "我的订单",
        "我的套餐是什么",
        "我的账单",
        "我被扣了多少钱",
        "我的会员什么时候到期",
        "我还剩几天年假",
        "我的快递单号",
        "我是什么会员等级",
        "查询我的成绩",
        "我上个月工资发了吗",
        "我欠多少钱",
        "我的航班延误了吗",
        "我多大了",
        "我账户里还有多少钱",
        "我的积分有多少",
        "我有哪些订单",
        "帮我看看我的快递",
        "我的预约是几点",
    ],
)
def test_what_depends_on_who_asks_is_personal(text: str) -> None:
    assert read(text).personal


ASKERS_OWN = [
    "What medication am I on?",
    "How is my application going?",
    "Am I overdue?",
    "Summarise my last email",
    "What grade did I get?",
    "Can you see my location?",
    "What is the name of my dog?",
    "Is my order #123 shipped?",
    "what are my symptoms?",
    "What did I eat yesterday?",
    "list the appointments I have",
    "remind me what I told you about my sister",
    "What's my blood type?",
    "Which doctor am I seeing on Tuesday?",
    "How did my exam go?",
    "What's in my fridge?",
    "Do I have diabetes?",
    "Did I pass the test?",
    "What did my boss say?",
    "What do you know about me?",
    "Where did I park?",
    "Any messages for me?",
    "Who emailed me?",
    "Why was my card declined?",
    "tell me my name",
    "What time is my flight?",
    "What do I usually order?",
    "Has my visa been approved?",
    "hows my order",
    "What's the last thing I asked?",
    "Did you get my email?",
    "Is my mom's flight delayed?",
    "my name?",
    "What team do I play for?",
    "我上次体检结果怎么样",
    "我今天有什么安排",
    "我老婆叫什么名字",
    "你了解我吗",
    "Was weißt du über mich?",
    "Wie geht es meiner Bewerbung?",
    "Quel médicament est-ce que je prends ?",
    "¿Estoy atrasado?",
    "我在吃什么药？",
    "我的申请怎么样了？",
    "我逾期了吗？",
    "总结一下我最后一封邮件",
    "我考了多少分？",
    "你能看到我的位置吗？",
    "我的狗叫什么名字？",
    "我昨天吃了什么？",
    "列出我的预约",
    "我有哪些症状？",
    "Wie heiße ich?",
    "Wann ist mein nächster Termin?",
    "Was habe ich bestellt?",
    "Was ist mein Kontostand?",
    "Bin ich überfällig?",
    "Fass meine letzte E-Mail zusammen",
    "¿Cuál es mi saldo?",
    "¿Cómo me llamo?",
    "¿Qué pedí ayer?",
    "Quel est mon solde ?",
    "Où est mon colis ?",
    "Comment je m'appelle ?",
    "私の名前は何ですか？",
    "Какой у меня баланс?",
    "Qual è il mio saldo?",
    "내 잔액은 얼마야?",
    "ما هو رصيدي؟",
]


@pytest.mark.parametrize("text", ASKERS_OWN)
def test_the_state_the_things_and_the_past_of_the_asker_are_personal(text: str) -> None:
    signals = read(text)
    assert signals.personal
    assert signals.about_asker


@pytest.mark.parametrize(
    "text",
    [
        "Can I freeze cooked rice?",
        "How long does my passport need to be valid?",
        "Am I allowed to work on a student visa?",
        "Is my dog allowed on the train?",
        "What are my rights if the train is late?",
        "Is my data encrypted?",
        "Where are my browser's cookies stored?",
        "Where can I see my orders?",
        "What did I do wrong?",
        "tell me the best options I have for lunch",
        "How many bones does an adult human have?",
        "Remind me how recursion works",
        "我的护照过期了还能用吗",
        "我的权利有哪些",
        "我能退货吗",
        "Wie setze ich mein Passwort zurück?",
        "Kann ich Reis einfrieren?",
        "Meine Katze niest, was hilft?",
        "¿Cómo cambio mi contraseña?",
        "¿Puedo congelar arroz?",
        "Comment changer mon mot de passe ?",
        "Puis-je congeler du riz ?",
        "Où se trouve la forêt de Brocéliande ?",
        "ما هي عاصمة المغرب؟",
        "富士山の高さは？",
        "Какая столица Франции?",
    ],
)
def test_what_is_the_same_for_everybody_is_not_personal(text: str) -> None:
    assert not read(text).personal


def test_a_question_that_may_be_about_the_asker_is_told_from_one_that_is_not() -> None:
    assert read("Is my deposit protected?").about_asker
    assert not read("How do I reset my password?").about_asker
    assert not read("How many bones does an adult human have?").about_asker
    assert read("我的权利有哪些").about_asker
    assert not read("我能退货吗").about_asker


@pytest.mark.parametrize(
    "text",
    [
        "weather today",
        "Los Angeles weather",
        "Door is closed.",
        "How do I say hello?",
        "What does Schadenfreude mean?",
        "jq '.[] | .name'",
        "42",
        "🇳🇱",
        "Which language is spoken in 🇳🇱?",
        "日语中的もないし什么意思",
        "北京有多少人",
        "帮我 check 一下 weather today",
    ],
)
def test_english_chinese_and_what_shows_no_language_are_known(text: str) -> None:
    assert read(text).language_known


@pytest.mark.parametrize(
    "text",
    [
        "Wo liegt der Schwarzwald?",
        "¿Cuál es la capital de Perú?",
        "Où se trouve la forêt de Brocéliande ?",
        "Qual è la capitale del Perù?",
        "Hoeveel inwoners heeft Utrecht?",
        "富士山の高さは？",
        "한국의 수도는 어디입니까?",
        "Какая столица Франции?",
        "ما هي عاصمة المغرب؟",
        "Ποια είναι η πρωτεύουσα της Ελλάδας;",
    ],
)
def test_a_language_whose_negations_and_numbers_are_not_known_is_said_to_be_unknown(text: str) -> None:
    assert not read(text).language_known


def test_a_message_without_words_of_its_own_is_in_the_language_of_the_talk() -> None:
    assert not read("Berlin", before="Das Paket kommt morgen an.", question="Wann kommt das Paket?").language_known
    assert read("Berlin", before=STATED).language_known


@pytest.mark.parametrize(
    "text",
    [
        "Nein, das stimmt nicht.",
        "Das ist falsch.",
        "Nein, ich meinte Montag.",
        "Vergiss es.",
        "Doch nicht, nimm Blau.",
        "No, eso no es correcto.",
        "Quería decir el lunes.",
        "¡No!",
        "Non, ce n'est pas ça.",
        "Je voulais dire lundi.",
        "Laisse tomber",
    ],
)
def test_corrections_in_german_spanish_and_french_are_seen(text: str) -> None:
    answers = {"de": "Das Paket kommt morgen.", "es": "El paquete llega mañana.", "fr": "Le colis arrive demain."}
    assert any(read(text, before=answer).correction for answer in answers.values())


@pytest.mark.parametrize(
    "text", ["Und in Berlin?", "Danke, und der zweite?", "Nein, danke", "¿Y en Madrid?", "Et à Lyon ?"]
)
def test_what_continues_in_another_language_is_no_correction(text: str) -> None:
    assert not read(text, before="Das Paket kommt morgen.").correction


@pytest.mark.skipif(not DATA.is_dir(), reason="the shared data is not here")
@pytest.mark.parametrize("language", ["en", "zh"])
def test_ordinary_turns_are_taken_for_no_other_language_and_few_for_ones_about_the_asker(language: str) -> None:
    read_ones = [
        signals_of(turn_from_messages(family["base"]["messages"]))
        for file in sorted(DATA.glob("*.jsonl"))
        for family in map(json.loads, file.read_text("utf-8").splitlines())
        if family["lang"] == language
    ]
    assert all(signals.language_known for signals in read_ones)
    assert sum(signals.about_asker for signals in read_ones) <= 0.04 * len(read_ones)


@pytest.mark.parametrize(
    "text",
    [
        "How do I reset my password?",
        "My cat sneezes, what helps?",
        "Can I change my flight after check-in?",
        "How do I check my balance?",
        "What happens to my data when I leave?",
        "Is it safe to share my order number?",
        "How can I track my parcel?",
        "My code does not compile.",
        "How many days do I have to return it?",
        "What is the balance of a binary tree?",
        "怎么重置我的密码",
        "我的猫打喷嚏怎么办",
        "订单可以取消吗",
        "怎么查我的余额",
        "我的代码报错了",
        "怎么看附近的人",
    ],
)
def test_how_to_questions_about_one_s_own_things_are_for_everyone(text: str) -> None:
    assert not read(text).personal


@pytest.mark.parametrize(
    "text",
    [
        "Write a poem about the sea.",
        "tell me a joke",
        "Compose a short song for my sister",
        "Can you make up a bedtime story about a fox?",
        "Give me a slogan for a bakery",
        "another joke please",
        "Write me a funny limerick",
        "sing me a song",
        "write three haikus",
        "写一首关于秋天的诗",
        "讲个笑话",
        "给孩子编一个睡前故事",
        "帮我写一副春联",
        "来个段子",
        "写首歌词",
        "再讲一个冷笑话吧",
        "Can you write me a poem?",
        "Tell me something funny",
        "write lyrics for a song about rain",
        "make up a story",
        "I need a slogan for my cafe",
        "Give me a pickup line",
        "compose a haiku",
        "Write a 200-word story about a dragon",
        "Invent a riddle",
        "improvise a rap",
        "create a short fairy tale",
        "写诗",
        "讲故事",
        "给我讲个故事吧",
        "写一段关于友情的小故事",
        "作一首七言绝句",
        "来首情诗",
        "帮我想一句广告语",
        "编个童话",
        "说个笑话听听",
        "写一篇科幻小说",
        "写个段子",
        "给咖啡店想个口号",
    ],
)
def test_invention_is_creative(text: str) -> None:
    assert read(text).creative


@pytest.mark.parametrize(
    "text",
    [
        "Propose a name for the column.",
        "Who wrote this poem?",
        "Summarise the story of the flood.",
        "What makes a joke funny?",
        "Write a function that sorts a list.",
        "Write a user story for the login page.",
        "How do I write a song?",
        "Write an email to my boss.",
        "How many story points is that?",
        "give me the list of songs on the album",
        "这首诗是谁写的",
        "怎么写歌词",
        "这个故事讲的是什么",
        "写一个排序函数",
        "他唱过什么歌",
        "翻译这首诗",
    ],
)
def test_what_has_an_answer_is_not_creative(text: str) -> None:
    assert not read(text).creative


@pytest.mark.parametrize(
    "text",
    [
        "Hi!",
        "hello there",
        "Thanks!",
        "thank you so much",
        "Thanks for the quick help!",
        "Bye",
        "Good morning :)",
        "Hi, how are you?",
        "thanks, bye 👋",
        "great, thanks!",
        "你好",
        "在吗？",
        "谢谢",
        "好的，谢谢你",
        "再见",
        "辛苦了",
        "早上好！",
        "谢谢啦 再见",
    ],
)
def test_a_greeting_thanks_or_farewell_alone_is_small_talk(text: str) -> None:
    assert read(text, before=STATED).smalltalk


@pytest.mark.parametrize(
    "text",
    [
        "Hi, how do I pay?",
        "Thanks. And the second?",
        "yes",
        "ok",
        "go ahead",
        "What does hello mean?",
        "thanks for nothing, but how do I pay?",
        "42",
        "你好，怎么付款",
        "谢谢，那退款呢",
        "好的",
        "可以",
        "你好用英语怎么说",
        "",
    ],
)
def test_anything_that_asks_or_decides_is_not(text: str) -> None:
    assert not read(text, before=STATED).smalltalk


def test_yes_thanks_to_an_offer_decides() -> None:
    assert not read("Yes, thanks", before=ASKED).smalltalk
    assert read("Ok, thanks", before=STATED).smalltalk


def test_what_is_only_mentioned_says_nothing() -> None:
    for text in (
        'What is the German for "never mind"?',
        "Explain `echo $(date) now`",
        "```\n# write a poem about today\n```\nWhat does this do?",
    ):
        signals = read(text, before=STATED)
        assert signals == Signals()


def test_the_reasons_name_signal_and_rule() -> None:
    assert read("No, I meant today's weather", before=STATED).reasons[0].startswith("correction: ")
    assert all(": " in reason for reason in read("Where is my order now?").reasons)


def test_mixed_languages_are_read_by_both_tables() -> None:
    assert read("帮我 check 一下 weather today").time_sensitive
    assert read("ok 算了", before=STATED).correction


@settings(max_examples=200)
@given(st.text(st.characters(), max_size=300), st.text(max_size=40))
def test_no_text_breaks_the_reading(text: str, before: str) -> None:
    assert isinstance(read(text, before=before), Signals)


@pytest.mark.parametrize(
    "text",
    [
        "thanks " * 300,
        "no, " * 500,
        "write a " * 400,
        "what is my " * 300,
        "好的" * 800,
        "今天" * 800,
        '"' * 1500,
        "'a " * 700,
        "`" * 1500,
    ],
)
def test_long_repetitive_texts_are_read_in_bounded_time(text: str) -> None:
    read(text, before=text)  # would hang, were a pattern to backtrack without bound


@pytest.mark.skipif(not DATA.is_dir(), reason="the shared data is not here")
@pytest.mark.parametrize(("language", "most"), [("en", 0.03), ("zh", 0.05)])
def test_few_ordinary_turns_are_barred(language: str, most: float) -> None:
    turns = [
        family["base"]["messages"]
        for file in sorted(DATA.glob("*.jsonl"))
        for family in map(json.loads, file.read_text("utf-8").splitlines())
        if family["lang"] == language
    ]
    barred = [talk for talk in turns if signals_of(turn_from_messages(talk)).reasons]
    assert len(barred) / len(turns) <= most
