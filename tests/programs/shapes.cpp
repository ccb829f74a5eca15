// What GDB's verbs are compared on in C++: a template of two types, whose lines are in several places, virtual calls,
// constructors and destructors, a lambda, an operator; up to a crash (SIGSEGV). Built with -O0 and with -O2.
struct Shape {
    virtual int area() const = 0;
    int scaled(int by) const { return area() * by; }
};

struct Square : Shape {
    explicit Square(int side) : side(side) {}
    int area() const override { return side * side; }
    int side;
};

struct Oblong : Shape {
    Oblong(int width, int height) : width(width), height(height) {}
    int area() const override
    {
        int product = width;
        product *= height;
        return product;
    }
    int width, height;
};

static volatile int closed;

struct Guard {
    ~Guard() { closed = closed + 1; }
};

struct Money {
    int cents;
    Money operator+(const Money &other) const { return { cents + other.cents }; }
};

template <typename T> __attribute__((noinline)) T largest(const T *values, int count)
{
    T found = values[0];
    for (int i = 1; i < count; i++)
        if (values[i] > found)
            found = values[i];
    return found;
}

__attribute__((noinline)) static int measure(const Shape &shape)
{
    Guard guard;
    return shape.scaled(3);
}

template <typename Function> __attribute__((noinline)) static int twice(Function function)
{
    return function() + function();
}

__attribute__((noinline)) static int read(const Shape *shape, int depth)
{
    Guard guard;
    if (depth == 0)
        return shape->area();
    return read(shape, depth - 1) + 1;
}

static const int numbers[] = { 3, 1, 4 };
static const char letters[] = { 'b', 'd' };
static Shape *volatile nothing;

int main()
{
    Square square(3);
    Oblong oblong(2, 5);
    int sum = measure(square) + measure(oblong);
    sum += largest(numbers, 3) + largest(letters, 2);
    sum += twice([&] {
        sum += 2;
        return sum;
    });
    Money money = Money { sum } + Money { 7 };
    return read(nothing, money.cents % 2 + 1);
}
