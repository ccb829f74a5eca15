/* Crashes with wide characters of C at hand, where they are other names of numbers. */
#include <stddef.h>
#include <uchar.h>
#include <wchar.h>

struct label {
    wchar_t letter;
    char16_t name[8];
};

__attribute__((noinline)) static int look(const wchar_t *wide, int *hole)
{
    wchar_t letter = L'w';
    char16_t unit = u'u';
    char32_t smile = U'\U0001f600';
    wchar_t words[] = L"words";
    char16_t narrow[] = u"narrow";
    char32_t full[] = U"full";
    int numbers[] = {'a', 'b', 0};
    struct label label = {L'l', u"name"};
    const char32_t *text = full;
    *hole = letter + unit + (int)smile + words[0] + narrow[0] + (int)full[0] + numbers[0] + label.letter + (int)text[0] + wide[0];
    return 0;
}

int main(void)
{
    return look(L"wide", NULL);
}
