"""Corrections told apart from ordinary negation: a table both ways, English and Chinese, with polite lead-ins.

A correction makes the answer before it suspect for everyone, so a sentence taken for one by mistake costs hits; one
that is missed serves what was just refused.
"""

from __future__ import annotations

from fingerprint.chat import turn_from_messages
from fingerprint.signals import Signals, signals_of

STATED = {"en": "The warehouse sends it within two days.", "zh": "仓库两天内发货。"}
ASKED = {"en": "It is sent within two days. A or B?", "zh": "仓库两天内发货。您要A还是B？"}

CORRECTIONS = """
Please, no, I meant the blue one.
Sorry to bother you, but that's not what I asked.
Thanks, but actually use plan B.
Thanks for that, but I meant the other account.
Thank you, but that's not the one I wanted.
Great, thanks. Actually, never mind.
Hmm, interesting, but no, I meant the return flight.
I'm sorry, I meant to say Tuesday.
Apologies for the confusion, I meant version 3.
Excuse me, that isn't right.
Pardon me, but you misread the question.
If you don't mind, use B instead.
Would you mind using B instead?
With respect, that is incorrect.
Okay, never mind then.
Ah, never mind, found it myself.
Oh sorry, never mind my last question.
Actually, use B.
Actually, B please.
Actually, let's use B.
Let's use B after all.
Let's go with B instead.
I'd prefer B instead.
Please use B instead.
Could we please switch to B instead?
Please switch to plan B.
On second thought, let's use the railway.
On reflection, let's not do that.
Wait, that's not right.
Wait, I meant the second paragraph.
Hold on, I said Java, not JavaScript.
Not Java, JavaScript.
I meant JavaScript, not Java.
I was referring to the second table.
I'm talking about the city, not the state.
I am asking about refunds, not exchanges.
My question was about refunds.
That's the wrong file.
That's the wrong answer.
This is wrong.
It's wrong.
You got it wrong.
You're mistaken.
You answered a different question.
You didn't answer my question.
That is not what I was looking for.
That's not helpful, I asked about the price.
That doesn't work, use something else.
No no no, the other one.
No, the one from 2019.
No, don't do that.
Don't do that, use the first approach.
Please don't book it.
Please ignore that.
Please forget what I said earlier.
Please disregard the above.
Scratch that.
Cancel that.
Cancel that, I'll walk.
Stop. I don't want that.
Strike that, reverse it.
Let me correct myself: it's 30 people.
Correction, it's 30 people.
Let me rephrase that.
I made a mistake, the year is 2019.
I misspoke, it should be 40.
Oops, wrong number. It's 40.
Sorry, typo: it's 40 not 14.
I take it back.
I've changed my mind, make it red.
Change of plan: we go by train.
Change of plans, make it Friday.
Make it Friday instead.
Make it blue, not red.
Use metres, not feet.
In euros, not dollars, please.
I want it in euros, not dollars.
We don't need the hotel any more.
We no longer need the hotel.
I don't need it anymore.
The budget has changed: it's 500 now.
Actually the budget is 500.
Actually it's for three people.
Actually, my flight is on Tuesday.
Undo the last change.
Revert that please.
Go back to the previous version.
Let's go back to the first plan.
Nope, that's not it.
Nah, use the other one.
That's not true.
You're wrong about the date.
The answer is wrong.
Your calculation is wrong.
That calculation is off.
There's an error in your answer.
There is a mistake in step 2.
I think you misunderstood.
I think you mean the other one.
You misunderstand me.
不好意思，我是说第二个
不好意思，你理解错了
麻烦改成下周三
麻烦换成蓝色
请改用方案B
请换成方案B
还是用方案B吧
还是换成B吧
那就用B吧，不用A了
算了，不用了
算了吧
算了，我自己来
那算了
好吧，算了
谢谢，不过我问的是退款
谢谢，但我说的是另一个账户
谢谢你，但是这不是我要的
您好，我刚才说错了
抱歉，我刚才打错了，是2019年
对不起，我的意思是下周
不对，我是说上海
不对，应该是八点
不对，是八点不是九点
不是，我说的是苹果公司
不是的，是另一家
不是这样的
不是这个意思
你搞反了
你看错了
你答非所问
回答错了
答案不对
这个答案是错的
计算错了
你算错了
算错了吧
重新算，人数是五个
我改变主意了，要红色的
我改主意了
计划有变，改坐火车
等等，我说的是Java不是JavaScript
是Java，不是JavaScript
不要A，要B
不是A是B
换成B
换B吧
改成B方案
改为三个人
改到周五
取消，不要了
取消刚才的操作
撤销
撤回上一条
忽略我上一条消息
请忽略上面的问题
当我没说过
别按那个做
别这样做，用第一种方法
不用了，谢谢
我不需要了
我不想要这个了
更正：是30人
纠正一下，是30人
说错了，是30人
搞错了
弄错了，不是这个
错了
不对吧
好像不对
感觉不对，应该是40
你没回答我的问题
我问的不是这个
我指的是第二段
我想问的是价格
Thanks, but that's not what I meant.
Excuse me, I said Lisbon.
Hmm ok, but I asked for the price.
I see, but that isn't my question.
Sorry, no. The other city.
Appreciate it, but I meant 2019.
I appreciate the effort, but that's wrong.
Right, but not that one.
Well, that's not correct.
Okay, forget it.
Actually scrap that
Scrap that, let's start over.
Ignore that, it's Thursday.
Let's start over.
No need, never mind.
Not that one, the red one.
That is not the document I sent.
You've mixed up the two cities.
You skipped the second part.
I said 15, not 50!
It should be 15.
It should have been 15, not 50.
Sorry, it's actually 15.
Actually it's 15.
Make that 15.
Change it to 15.
Could you change that to 15?
Do it without the discount instead.
I want the other one.
I'd rather not.
I don't want to do that any more.
On second thought no.
By the way, I meant km, not miles.
Not like that.
Not in French, in German.
谢谢，但不是这个
好的，但是我问的是价格
嗯，不过我说的是上海
麻烦你，我说的是明天
不好意思，应该是15
刚刚说错了，15个
改一下，是15个
改成15
还是改成15吧
我是说15不是50
不是50，是15
等一下，我说的不是这个
这不是我要的
完全不对
你弄混了
你漏了第二部分
不要那个了
先不要了
还是不要了
不用那个，用另一个
""".strip().split("\n")

OTHERS = """
Why is there no log?
Why does it say "no such file"?
There's no error, it just hangs.
It doesn't work, what can I do?
It is not working.
I don't see a log file.
I can't log in.
I can not find the button.
No idea, you choose.
No worries, thanks!
No problem.
Is that not dangerous?
Isn't that wrong?
Is this wrong: 2+2=5?
What's wrong with my code?
What did I do wrong?
Which of these is wrong?
My password is wrong, how do I reset it?
I got the wrong item, how do I return it?
I ordered the wrong size, what now?
How do I change it to Friday?
How can I change my mind about a purchase?
Can I change the date?
Can I switch to plan B later?
Can I use B instead?
Should I use B instead of A?
Would it be better to use B instead?
What if we use B instead?
What happens if I cancel that?
How do I cancel that?
How do I undo the last commit?
How to ignore a file in git?
How do I ignore that warning?
How do I forget a wifi network?
What does "never mind" mean?
What does "scratch that" mean?
Translate "no, I meant the blue one" into French.
How do you say "that's wrong" in Spanish?
Actually, what does that mean?
Actually, can you explain step 2?
Actually, that makes sense.
Actually that worked, thanks.
What do you mean?
I mean, why does it do that?
Do you mean the blue one?
Not sure, what do you think?
Not yet.
Not really.
Not at all.
Not bad!
Nothing else, thanks.
None of them.
Neither.
I don't know.
I don't have one.
I don't understand.
I didn't get it, can you explain again?
I never got the email.
I have no account yet.
There are no results in the table.
Without sugar, please.
And if not?
If not, what then?
Why not?
Wait for the build to finish, then what?
Hold on to the receipt, right?
Stop the container, then what?
How do I stop it?
Which plan is better, A or B?
Then do it that way.
Do it that way.
Use B.
Book it for Friday.
Make a table of it.
Make it shorter.
Say it in Spanish.
Give me another example.
One more, please.
The second one.
And the second one?
What about the blue one?
Is it correct?
Is that right?
Are you sure?
Are you sure that's correct?
That's right.
That's correct, go on.
That's not a problem.
That's not bad at all.
It's not urgent.
You can't be serious about the price, is it per month?
I said yes.
Forget-me-nots: how often do I water them?
Ignore case in grep, how?
Correct my spelling in this text.
Fix the mistake in my essay.
Find the error in this code.
Is the change of plan free?
Instead of sugar, what can I use?
Rather cold today, isn't it?
为什么没有日志？
为什么不能登录
没有报错，就是卡住了
我登录不了
我没有账号
还没有
不知道
不太明白
不清楚，你觉得呢
不客气
没问题
没关系
没事
这样不对吗？
这个答案对不对？
哪里不对？
我哪里做错了？
下面哪个是错的？
密码错误怎么办
输错密码了怎么办
买错了怎么退
订错了日期怎么改
怎么取消订单
怎么撤回消息
怎么撤销上一次提交
怎么忽略文件
如何换成蓝色
能换成B吗
可以改成周五吗
能不能换成别的
换成B会怎么样
如果换成B呢
要不要换成B？
是不是换成B更好
“算了”用英语怎么说
“不对”是什么意思
不对称加密是什么
不是会员可以买吗
不是周末也开门吗
不要糖可以吗
不用密码能登录吗
不加糖
不辣的
没有别的了
没收到验证码
你是说第二个吗
你的意思是要退货吗
对吗
确定吗
对的
没错
没错，继续
说得对
那就这样做吧
就按这个做
用B
再来一个
第二个
那第二个呢
还有别的吗
改一下错别字
帮我改错
找出错误
其实是什么意思
其实我还想问一下，价格是多少
算了一下，一共是多少
Use olive oil, not butter?
Thanks, but how long does that take?
Interesting, how does it work?
Excuse me, where is the station?
I'm sorry, I don't follow. Can you explain?
Good answer! What about Spain?
Switch to dark mode
Can you switch to dark mode?
In my opinion, not many people know that. Why?
For beginners, not experts, which book is best?
I no longer have access to my email, what can I do?
I no longer need the product, how do I return it?
The requirements have changed since 2020. What is new?
The price has changed, why?
I'd prefer a window seat, is that possible?
Don't do it if it's dangerous?
My question is: how tall is it?
My question is about visas: how long are they valid?
This result is wrong, isn't it? How do I check?
Is there a mistake in step 2?
Does that mean there is an error in the file?
That number is off the chart, why?
I want a phone for calls, not games, which one?
I want that in a table.
I want this translated.
Not many people know this. Why?
Actually, thanks, I got it.
Actually I understand now.
I said it in the first message: Berlin.
Cancel my order
Cancel it
Change my address
Move the meeting to Friday
Keep going
Go on
Try again
Do it again
Show me the other one
What else?
Sounds wrong to me, is it true?
Stop words: what are they?
No smoking area?
No. of employees?
Nobody told me that.
Never heard of it.
Nothing.
Could it be that the server is down?
the second one doesn't work on my phone, why?
Trying that now.
Using Java 17, how do I do that?
Would you recommend it?
Would you mind explaining step 2?
谢谢，那怎么退货？
感谢，请继续
你好，请问几点开门
您好，我想问一下退款
不过这个要多少钱？
就用支付宝付款可以吗
换个角度讲讲
换一下说法怎么说
是今天不是明天对吧？
是不是不用交钱
别忘了说价格
别的颜色有吗
别人也能看到吗
算了多少天
算一下总价
重新登录，还是不行怎么办
重新安装要多久
数字错了怎么改
不需要发票可以吗
我不需要密码就能登录吗
好像下雨了
好像可以
好几个方案都行
好看吗
感觉不错
我觉得可以
取消订单
取消
撤销操作怎么做
换行怎么打
计划有哪些
就买这个
是苹果，不是梨，对吗
""".strip().split("\n")

ANSWERS = """
No.
No thanks.
Not now.
I'd rather have A.
I'd prefer B.
A, please.
Please don't book it.
Don't do that.
Use B, not A.
In euros, not dollars.
不用了
不要
要B
还是用B吧
不要A，要B
是B，不是A
就用B吧
""".strip().split("\n")


def read(text: str, before: dict[str, str], question: str = "How does it work?") -> Signals:
    language = "en" if text.isascii() else "zh"
    said = [question, before[language], text]
    messages = [{"role": ("user", "assistant")[i % 2], "content": one} for i, one in enumerate(said)]
    return signals_of(turn_from_messages(messages))


def test_they_correct_what_was_answered() -> None:
    assert [text for text in CORRECTIONS if not read(text, STATED).correction] == []


def test_the_others_correct_nothing_after_a_statement_or_a_question() -> None:
    assert [text for text in OTHERS for before in (STATED, ASKED) if read(text, before).correction] == []


def test_to_a_question_they_are_answers() -> None:
    assert [text for text in ANSWERS if read(text, ASKED).correction] == []


def test_at_the_first_turn_there_is_nothing_to_correct() -> None:
    first = [turn_from_messages([{"role": "user", "content": text}]) for text in (*CORRECTIONS, *OTHERS, *ANSWERS)]
    assert [turn.message.text for turn in first if signals_of(turn).correction] == []


def test_a_correction_stays_one_in_capitals_with_curly_apostrophes_and_behind_a_courtesy() -> None:
    for text in (
        "NO, I MEANT THE BLUE ONE",
        "That’s not what I asked",
        "Oh, sorry, no, I meant the blue one",
        "ok thanks, but I meant B",
    ):
        assert read(text, STATED).correction, text
