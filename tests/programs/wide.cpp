// Crashes with characters of every width at hand: alone, in arrays, behind pointers, in the library's strings.
#include <string>
#include <string_view>

struct Label {
    wchar_t letter;
    char16_t name[8];
    const char32_t *text;
};

typedef wchar_t Letter;

__attribute__((noinline)) int look(const wchar_t *wide, const char16_t *narrow, const char32_t *full, int *hole)
{
    wchar_t letter = L'w';
    wchar_t accent = L'\u00e9';
    wchar_t negative = static_cast<wchar_t>(-1);
    char16_t unit = u'\u20ac';
    char16_t half = static_cast<char16_t>(0xd83d);
    char32_t smile = U'\U0001f600';
    char32_t beyond = static_cast<char32_t>(0x110000);
    char8_t octet = u8'o';
    wchar_t quote = L'\'';
    wchar_t line = L'\n';
    wchar_t zero = L'\0';
    Letter named = L'n';
    wchar_t words[] = L"a \"wide\" text\n";
    wchar_t padded[16] = L"pad";
    wchar_t many[32] = L"xxxxxxxxxxxxxxxxxxxxyyz";
    wchar_t full_array[3] = {L'a', L'b', L'c'};
    wchar_t inner[6] = {L'a', 0, L'b', 0, 0, L'c'};
    char16_t pair[] = u"\U0001f600!";
    char16_t broken[] = {u'a', static_cast<char16_t>(0xd83d), u'b', 0};
    char16_t broken_run[] = {static_cast<char16_t>(0xd83d), static_cast<char16_t>(0xd83d), u'1', 0};
    char32_t faces[] = U"\u00e9\U0001f600";
    char32_t strange[] = {U'x', static_cast<char32_t>(0x110000), U'7', static_cast<char32_t>(0x80), U'g', 0};
    char8_t octets[] = u8"h\u00e9llo";
    wchar_t lines[2][4] = {L"one", L"two"};
    wchar_t grand[300] = {};
    for (int i = 0; i < 299; i++)
        grand[i] = L'a' + i % 26;
    const char8_t *eight = octets;
    const wchar_t *long_text = grand;
    const wchar_t *nowhere = nullptr;
    Label label = {L'l', u"name", U"text"};
    std::wstring wide_string = L"wide \u00e9";
    std::u16string short_string = u"sixteen";
    std::u32string full_string = U"thirty-two \U0001f600";
    std::u8string octet_string = u8"eight";
    std::wstring long_string(300, L'z');
    std::wstring none;
    std::wstring_view view = std::wstring_view(wide_string).substr(1, 3);
    *hole = static_cast<int>(letter + accent + negative + unit + half + smile + beyond + octet + quote + line + zero + named
        + words[0] + padded[0] + many[0] + full_array[0] + inner[0] + pair[0] + broken[0] + broken_run[0] + faces[0] + strange[0] + octets[0]
        + lines[0][0] + wide[0] + narrow[0] + full[0] + eight[0] + long_text[0] + (nowhere == nullptr) + label.letter
        + wide_string.size() + short_string.size() + full_string.size() + octet_string.size() + long_string.size()
        + none.size() + view.size());
    return 0;
}

int main()
{
    return look(L"wide", u"narrow", U"full", nullptr);
}
