/* Indirect flow: a jump table from a dense switch, and a table of function pointers (a tiny
 * stack machine). */
enum op { PUSH, ADD, MUL, SUB, DUP, SWAP, JUMP_IF, HALT };

struct instruction {
    enum op op;
    int operand;
};

static int negate(int value) { return -value; }
static int square(int value) { return value * value; }
static int halve(int value) { return value / 2; }
static int (*volatile unary[])(int) = { negate, square, halve };

__attribute__((noinline)) static int run(const struct instruction *program)
{
    int stack[16] = { 0 }, top = 0;
    for (int at = 0;; at++) {
        int swapped;
        switch (program[at].op) {
        case PUSH: stack[top++] = program[at].operand; break;
        case ADD: top--; stack[top - 1] += stack[top]; break;
        case MUL: top--; stack[top - 1] *= stack[top]; break;
        case SUB: top--; stack[top - 1] -= stack[top]; break;
        case DUP: stack[top] = stack[top - 1]; top++; break;
        case SWAP: swapped = stack[top - 1]; stack[top - 1] = stack[top - 2]; stack[top - 2] = swapped; break;
        case JUMP_IF: if (stack[top - 1] > 0) at = program[at].operand - 1; break;
        case HALT: return stack[top - 2];
        }
    }
}

int main(void)
{
    /* 2 to the power of ten: an accumulator under a counter. */
    static const struct instruction power[] = {
        { PUSH, 1 }, { PUSH, 10 }, { SWAP, 0 }, { PUSH, 2 }, { MUL, 0 }, { SWAP, 0 },
        { PUSH, 1 }, { SUB, 0 },   { JUMP_IF, 2 }, { HALT, 0 },
    };
    int value = run(power);
    for (int i = 0; i < 3; i++)
        value = unary[i](value % 1000);
    return value == 24 * 24 / 2 ? 0 : 1;
}
