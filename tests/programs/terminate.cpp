// An exception that nobody catches: std::terminate, abort, SIGABRT.
#include <stdexcept>

__attribute__((noinline)) static int parse(const char *text)
{
    if (*text != '{')
        throw std::invalid_argument("a document begins with a brace");
    return 1;
}

int main()
{
    return parse("[1]");
}
