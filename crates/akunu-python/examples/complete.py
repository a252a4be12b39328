import akunu

model = akunu.Model.load("smollm2")
for piece in model.generate("The capital of France is", max_tokens=32):
    print(piece, end="", flush=True)
