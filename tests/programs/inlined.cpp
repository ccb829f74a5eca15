// Inlining five deep (-O2 and always_inline), with a crash (SIGSEGV) in the innermost call.
struct Node {
    Node *next;
    int value;
};

#define INLINE __attribute__((always_inline)) inline

static INLINE int load(const Node *node)
{
    return *static_cast<const volatile int *>(&node->value);
}

static INLINE int visit(const Node *node)
{
    return load(node) * 3;
}

static INLINE int walk(const Node *node, int count)
{
    int sum = 0;
    for (; count > 0; count--) {
        sum += visit(node);
        node = node->next;
    }
    return sum;
}

static INLINE int total(const Node *list, int count)
{
    return walk(list, count) + 1;
}

__attribute__((noinline)) static int report(const Node *list, int count)
{
    return total(list, count);
}

static Node third = { nullptr, 3 }, second = { &third, 2 }, first = { &second, 1 };
static volatile int length = 3;

int main()
{
    int right = report(&first, length);
    return report(&first, length + (right == 19)); // one more than there are
}
