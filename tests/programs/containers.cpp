// Crashes with values of classes and of the standard library's containers at hand: bases, static and virtual members,
// references, namespaces, templates, scoped enumerations.
#include <bitset>
#include <deque>
#include <list>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <tuple>
#include <unordered_map>
#include <utility>
#include <variant>
#include <vector>

namespace shop {

enum class Size { Small, Large = 5 };

struct Named {
    std::string name;
    static int made;
    explicit Named(std::string given) : name(std::move(given)) { made++; }
    virtual ~Named() = default;
    virtual int cost() const = 0;
};
int Named::made = 0;

class Item : public Named {
public:
    Item(std::string given, int price, Size size) : Named(std::move(given)), price(price), size(size) {}
    int cost() const override { return price + discount; }
    int total(int count) const;

protected:
    int price;

private:
    Size size;
    int discount = -1;
    static constexpr int limit = 10;
};

struct __attribute__((packed)) Tight {
    char letter;
    long number;
};

template <typename T> struct Pair {
    T first, second;
};

namespace {
int hidden = 99;
}

int Item::total(int count) const
{
    int sum = 0;
    for (int i = 0; i < count; i++)
        sum += cost();
    if (sum > limit)
        *reinterpret_cast<volatile int *>(this->price == 0 ? &sum : nullptr) = sum;
    return sum + hidden;
}

} // namespace shop

int visit(const std::vector<int> &numbers, std::map<std::string, int> &stock, const shop::Named *thing)
{
    std::string text = "a \"quoted\" text";
    std::string longer(300, 'x');
    std::string_view view = std::string_view(text).substr(2, 6);
    std::vector<std::string> words = {"one", "two"};
    std::vector<bool> bits = {true, false, true};
    std::vector<int> none;
    std::set<int> ordered = {3, 1, 2};
    std::unordered_map<int, std::string> hashed = {{7, "seven"}};
    std::list<short> listed = {1, 2, 3};
    std::deque<int> queue = {4, 5, 6};
    std::optional<int> some = 5;
    std::optional<std::string> nothing;
    std::unique_ptr<int> owner = std::make_unique<int>(8);
    std::shared_ptr<int> shared = std::make_shared<int>(9);
    std::shared_ptr<int> second = shared;
    std::weak_ptr<int> weak = shared;
    std::shared_ptr<int> empty;
    std::pair<int, char> both = {1, 'b'};
    shop::Pair<double> doubles = {1.5, 2.5};
    std::variant<int, std::string> either = std::string("second"), number = 7;
    std::tuple<int, std::string, short> triple = {1, "t", 3};
    std::tuple<> nobody;
    std::bitset<70> flags = std::bitset<70>(0x2a5) | std::bitset<70>(1) << 69;
    int shop::Pair<int>::*member = &shop::Pair<int>::second;
    int shop::Pair<int>::*no_member = nullptr;
    int (shop::Item::*function)(int) const = &shop::Item::total;
    std::unordered_map<std::string, short> named = {{"one", 1}, {"two", 2}};
    std::unordered_map<int, shop::Tight> tight = {{7, {'t', 77}}};
    std::multiset<int> twice = {1, 5, 5};
    std::map<unsigned, int> unsigned_keys = {{4294967295u, 1}};
    std::map<int, double> big;
    for (int i = 0; i < 20; i++)
        big[i * 3 % 20] = i / 2.0;
    int local = static_cast<int>(numbers.size());
    int &reference = local;
    int &&temporary = 12;
    shop::Size size = shop::Size::Large;
    bool yes = true;
    char16_t wide = u'\u00e9';
    const shop::Item &item = *static_cast<const shop::Item *>(thing);
    reference += item.total(3) + temporary;
    return reference + static_cast<int>(both.first + doubles.first + view.size() + words.size() + bits.size()
        + none.size() + ordered.size() + hashed.size() + listed.size() + queue.size() + *some + *owner + *second
        + stock.size() + longer.size()) + static_cast<int>(size) + yes + wide + nothing.has_value()
        + static_cast<int>(big.size()) + (weak.expired() || empty)
        + static_cast<int>(either.index() + number.index() + std::get<0>(triple) + flags.count() + named.size())
        + (member != no_member) + (function == nullptr) + static_cast<int>(sizeof nobody)
        + static_cast<int>(tight.size() + twice.size() + unsigned_keys.size());
}

int main()
{
    std::vector<int> numbers = {1, 2, 3, 5, 8};
    std::map<std::string, int> stock = {{"apple", 3}, {"pear", 0}};
    shop::Item item("book", 21, shop::Size::Large);
    return visit(numbers, stock, &item);
}
