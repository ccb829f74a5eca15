// Crashes with objects of many kinds of classes at hand: member functions, typedefs, labels, virtual bases and casts between them.
#include <string>

namespace shop {

struct Base {
    int plain = 1;
    static int made;
    Base() = default;
    virtual int cost() const = 0;
    virtual void none() {}
};
int Base::made = 7;

class Item : public Base {
public:
    Item(int price, std::string name);
    Item(const Item &) = default;
    Item &operator=(const Item &);
    Item(Item &&) noexcept;
    explicit operator bool() const;
    int cost() const override { return price; }
    static Item *make(int, ...);
    template <typename T> T as() const { return T(price); }
    typedef int Price;
    using Names = std::string;
    enum Kind { A, B };
    enum class Way { X };
    struct Inner {
        int x;
        struct Deeper {
            int y;
        } d;
    };
    class Hidden {
        int z;
    };
    Price operator()(Price a, const char *b) volatile;
    int operator[](int) const;
    Item *operator->();
    Item &operator++();
    Item operator++(int);
    void *operator new(unsigned long) noexcept;
    ~Item();

protected:
    int price;
    void guard();

private:
    Kind kind = B;
    Inner inner = {1, {2}};
    Names name;
    static constexpr int limit = 10;
    void secret(int (*f)(int), int a[3], Inner &i);
    typedef long Secret;
    Secret number = 3;
    union {
        int whole;
        float part;
    };
    int bits : 3;
};
Item::Item(int p, std::string n) : price(p), name(n) { whole = 0, bits = 1; }
Item::Item(Item &&o) noexcept : price(o.price) {}
Item &Item::operator=(const Item &) { return *this; }
Item::operator bool() const { return price; }
Item *Item::make(int, ...) { return nullptr; }
Item::Price Item::operator()(Price a, const char *) volatile { return a; }
int Item::operator[](int) const { return 0; }
Item *Item::operator->() { return this; }
Item &Item::operator++() { return *this; }
Item Item::operator++(int) { return *this; }
void *Item::operator new(unsigned long) noexcept { return nullptr; }
Item::~Item() {}
void Item::guard() {}
void Item::secret(int (*)(int), int *, Inner &) {}

template <typename T, int N> struct Box {
    T held[N];
    T get(int i) const { return held[i]; }
    void put(T t) { held[0] = t; }
    typedef T type;
    Box() : held{} {}
};

class Empty {};
struct Methods {
    void f() {}
};
struct OnlyStatic {
    static int x;
};
int OnlyStatic::x = 5;
class Private {
    int a = 1;
    void f() {}
    friend int use(Private &);
};
int use(Private &p)
{
    p.f();
    return p.a;
}
struct Public {
    int a = 2;
    int f(int x) { return x + a; }
};
class Heir : Public {
public:
    int q = 3;
};
union Either {
    int i;
    float f;
    void set(int x) { i = x; }
};
struct Deleted {
    Deleted() = default;
    Deleted(const Deleted &) = delete;
    int x = 4;
};
struct OnlyBase : Public {};

struct Animal {
    int legs = 4;
    virtual ~Animal() {}
    virtual int noise() { return legs; }
};
struct Swimmer : virtual Animal {
    int fins = 2;
    int noise() override { return fins; }
};
struct Flyer : virtual Animal {
    int wings = 6;
};
struct Duck : Swimmer, Flyer {
    int age = 8;
    int noise() override { return age; }
};
struct Left {
    long l = 11;
};
struct Right {
    long r = 12;
};
struct Both : Left, Right {
    long own = 13;
};
struct Plain {
    int p = 21;
};
struct OverPlain : virtual Plain {
    int over = 22;
    OverPlain() {}
    explicit OverPlain(int given) : over(given) {}
};

} // namespace shop

using namespace shop;

__attribute__((noinline)) int look(Animal *animal, Flyer &flyer, const Both *both, int *hole)
{
    Item item(3, "x");
    Item copy(item);
    bool yes = bool(item);
    Item *made = Item::make(1);
    double as = item.as<double>();
    int called = item(1, "") + item[1];
    ++item;
    item++;
    Item::Hidden *hidden = nullptr;
    Item::Way way = Item::Way::X;
    Item::Inner inner = {5, {6}};
    Box<int, 3> box;
    box.put(2);
    Empty empty;
    Methods methods;
    methods.f();
    OnlyStatic only;
    Private priv;
    Public pub;
    Heir heir;
    Either either;
    either.set(1);
    Deleted deleted;
    OnlyBase based;
    Duck duck;
    Swimmer swimmer;
    OverPlain over;
    Plain *plain = &over;
    Swimmer *swims = &duck;
    Flyer *flies = &duck;
    Animal *inside = &duck;
    Right *right = const_cast<Both *>(both);
    Duck ducks[2];
    Animal *nobody = nullptr;
    const Item &ref = item;
    const Base *base = &item;
    Box<int, 3>::type bt = box.get(0);
    struct Local {
        int a;
        void m() {}
    } local = {9};
    local.m();
    *hole = yes + (made == nullptr) + static_cast<int>(as) + called + (hidden == nullptr) + static_cast<int>(way) + inner.x
        + use(priv) + pub.f(2) + heir.q + either.i + deleted.x + based.a + duck.age + swimmer.fins + over.over + plain->p
        + swims->fins + flies->wings + inside->legs + static_cast<int>(right->r) + ducks[1].age + (nobody == nullptr)
        + ref.cost() + base->plain + bt + local.a + animal->noise() + flyer.wings + static_cast<int>(both->own)
        + (&empty != nullptr) + only.x + static_cast<bool>(copy);
    return 0;
}

int main()
{
    Duck duck;
    Both both;
    return look(&duck, duck, &both, nullptr);
}
