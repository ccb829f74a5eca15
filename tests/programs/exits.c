/* A program that ends well: exit status 7, one write, no crash. */
#include <unistd.h>

int main(void)
{
    static const char text[] = "all is well\n";
    return write(1, text, sizeof text - 1) == sizeof text - 1 ? 7 : 1;
}
