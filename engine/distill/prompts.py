"""The prompts a draft is distilled on, and the held-out ones it is judged by.

Two sources: forms × topics written here, and user turns that the target invents itself (see `generate.invent`): the
first cover what people ask a small assistant, the second follow the target's own idea of a conversation. The held-out
prompts share no form or topic with the training ones word for word, and `training_prompts` leaves them out.
"""

from __future__ import annotations

import random

TOPICS = (
    "photosynthesis", "black holes", "the French Revolution", "the stock market", "sourdough bread", "volcanoes",
    "machine learning", "the human heart", "jazz", "climate change", "honey bees", "the Roman Empire", "chess",
    "quantum mechanics", "vaccines", "electric cars", "the water cycle", "dreams", "the moon", "meditation",
    "inflation", "renewable energy", "the Great Wall of China", "coffee", "antibiotics", "earthquakes", "democracy",
    "the internet", "gravity", "dinosaurs", "yoga", "the Renaissance", "plastic recycling", "sharks", "the brain",
    "poetry", "public libraries", "hurricanes", "football", "cryptography", "the ozone layer", "glaciers", "opera",
    "evolution", "the Industrial Revolution", "sleep", "rainbows", "computer viruses", "tea", "the solar system",
    "migration of birds", "the immune system", "space travel", "wine", "friendship", "the periodic table", "robots",
    "rivers", "olive oil", "the Cold War", "photography", "coral reefs", "bicycles", "DNA", "lightning", "chocolate",
    "the Olympic Games", "deserts", "musical harmony", "trains", "probability", "the Silk Road", "stress", "whales",
    "urban gardens", "philosophy", "Shakespeare", "taxes", "nuclear power", "the Amazon rainforest", "marathons",
    "mathematics", "fashion", "wolves", "the printing press", "memory", "origami", "bridges", "the ancient Egyptians",
)  # fmt: skip

FORMS = (
    "What is {}?", "Explain {} in simple terms.", "Explain {} to a ten-year-old.", "Tell me about {}.",
    "Write a short poem about {}.", "Write a short story about {}.", "Give me three interesting facts about {}.",
    "Why is {} important?", "What are the advantages and disadvantages of {}?", "Summarize the history of {}.",
    "How would you teach a class about {}?", "List five things everyone should know about {}.",
    "Write an email to a friend about {}.", "What are common misconceptions about {}?",
    "How has our understanding of {} changed over time?", "Write a dialogue between two people discussing {}.",
    "Give me advice for someone who is new to {}.", "Describe {} in one paragraph.",
    "What questions do people ask about {}? Answer two of them.", "Write a short essay on {}.",
    "Compare {} with something similar.", "How does {} affect daily life?", "Make a plan for a talk about {}.",
    "What is the future of {}?", "Write a quiz with three questions about {}, and give the answers.",
)  # fmt: skip

TASKS = (
    "Write a Python function that {}.", "Write a program in Python that {}.", "Show me how to write code that {}.",
    "Explain, step by step, how to write a function that {}.",
)  # fmt: skip
CODE = (
    "reverses a string", "checks whether a number is prime", "computes the Fibonacci numbers", "sorts a list",
    "finds the largest number in a list", "counts the words in a text", "reads a file line by line",
    "computes the factorial of a number", "merges two dictionaries", "removes duplicates from a list",
    "checks whether a string is a palindrome", "converts Celsius to Fahrenheit", "computes the average of a list",
    "finds the common elements of two lists", "searches a sorted list by bisection", "counts the vowels in a word",
    "downloads a web page", "parses a CSV file", "generates a random password", "sums the even numbers up to n",
)  # fmt: skip

EVERYDAY = (
    "Hi!", "Hello, who are you?", "How are you today?", "Can you help me?", "Tell me a joke.", "Tell me a fun fact.",
    "What is 12 times 7?", "If I have 15 apples and give away 6, how many are left?", "What is the capital of Spain?",
    "Translate 'good morning' into French.", "Write a birthday message for my sister.", "What should I cook tonight?",
    "Give me a recipe for pancakes.", "How do I tie a tie?", "How can I save money?", "How do I learn a language?",
    "Write a cover letter for a job as a teacher.", "Suggest a name for my cat.", "Plan a weekend trip to Rome.",
    "How can I sleep better?", "What is the difference between a virus and a bacterium?", "Give me a workout plan.",
    "How do I remove a coffee stain?", "Write a limerick.", "Write a haiku about winter.", "Recommend three books.",
    "Rewrite this sentence more politely: Send me the report now.", "Correct the grammar: He go to school yesterday.",
    "Classify the sentiment of this review: The food was cold and the service slow.", "Who wrote Hamlet?",
    "Summarize this: Maria missed the bus, walked home in the rain, and caught a cold.", "What can you do?",
)  # fmt: skip

HELD_OUT = (
    "Why is the sky blue?", "Explain how a refrigerator keeps food cold.", "Write a fairy tale about a lost umbrella.",
    "What causes tides in the ocean?", "Describe the life of a medieval blacksmith.", "How do airplanes stay up?",
    "Give me tips for a job interview as a nurse.", "Write a Python class for a bank account.",
    "What is the difference between weather and climate?", "Explain how credit cards work.",
    "Write a letter of complaint about a late train.", "Who was Marie Curie and what did she discover?",
    "How do I repot an orchid?", "Write a song about the sea.", "What are the main ideas of Buddhism?",
    "Explain recursion with an example in code.", "Plan a birthday party for a six-year-old.",
    "Why do cats purr?", "Write a news report about a town that banned cars.", "How is glass made?",
    "List the steps to change a flat tire.", "What makes a good leader?", "Explain supply and demand.",
    "Write a scene in which a detective finds a strange key.", "What is the best way to learn the piano?",
    "How do submarines work?", "Compare cats and dogs as pets.", "Describe a sunset over the mountains.",
    "A train leaves at 3 pm and travels 120 km at 60 km per hour. When does it arrive?",
    "Write a product description for a wooden toy.", "What happened during the Apollo 11 mission?",
    "Give me a healthy breakfast idea and explain why it is healthy.",
)  # fmt: skip
"""Never trained on. The first eight are the benchmark's."""

OPENINGS = ("", "What", "How", "Write", "Explain", "I", "Can you", "Why", "Give me", "Please", "The", "In", "Describe")
"""First words of the user turns that the target invents; the empty one leaves the choice to it."""


def training_prompts(count: int, seed: int) -> list[str]:
    """Up to `count` distinct prompts from forms × topics, code tasks and everyday turns, shuffled."""
    topics = [form.format(topic) for form in FORMS for topic in TOPICS]
    code = [task.format(what) for task in TASKS for what in CODE]
    rng = random.Random(seed)
    rng.shuffle(topics)
    common = [*code, *EVERYDAY]
    chosen = [*common, *topics][: max(count, 0)]
    rng.shuffle(chosen)
    held_out = set(HELD_OUT)
    return [prompt for prompt in chosen if prompt not in held_out]
