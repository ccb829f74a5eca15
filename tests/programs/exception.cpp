// C++ exceptions: thrown through five frames with destructors, rethrown once, and caught.
#include <stdexcept>
#include <string>

static int destroyed;

struct Guard {
    ~Guard() { destroyed++; }
};

__attribute__((noinline)) static int descend(int depth)
{
    Guard guard;
    if (depth == 0)
        throw std::runtime_error("at the bottom");
    return descend(depth - 1) + 1;
}

__attribute__((noinline)) static int relay(int depth)
{
    try {
        return descend(depth);
    } catch (const std::logic_error &) {
        return -1;
    } catch (...) {
        destroyed += 100;
        throw;
    }
}

int main()
{
    try {
        return relay(4);
    } catch (const std::exception &error) {
        return error.what() == std::string("at the bottom") && destroyed == 105 ? 0 : 1;
    }
}
