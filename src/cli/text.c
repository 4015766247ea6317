/* SPDX-License-Identifier: MIT */
#include "cli/text.h"

#include <stdbool.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

/* Characters, taking each for one column; what printable() lets through is UTF-8. */
size_t text_columns(const char *text)
{
    size_t count = 0;
    for (; *text; text++)
        count += ((unsigned char)*text & 0xc0) != 0x80;
    return count;
}

void text_wrap(FILE *out, const char *text, const char *first, const char *indent)
{
    size_t column = strlen(first);
    fputs(first, out);
    for (const char *blank = ""; *text; blank = " ") {
        size_t word = strcspn(text, " ");
        if (text[word] == ' ' && text[word + 1] == '%') /* a number stays with its sign */
            word += 1 + strcspn(text + word + 1, " ");
        if (column + 1 + word > TEXT_WIDTH) {
            fprintf(out, "\n%s", indent);
            column = strlen(indent);
            blank = "";
        }
        column += (size_t)fprintf(out, "%s%.*s", blank, (int)word, text);
        text += word;
        text += strspn(text, " ");
    }
    fputc('\n', out);
}

/* Bytes of the UTF-8 character at text: 1 to 4, or 0 if it is none. */
static size_t character(const unsigned char *text, size_t length)
{
    static const uint32_t lowest[] = {0, 0, 0x80, 0x800, 0x10000};
    const unsigned char first = text[0];
    const size_t n = first < 0x80 ? 1 : first < 0xc2 ? 0 : first < 0xe0 ? 2 : first < 0xf0 ? 3 : 4;
    if (n == 0 || n > length || first > 0xf4)
        return 0;
    uint32_t value = n == 1 ? first : first & (0xffU >> (n + 1));
    for (size_t i = 1; i < n; i++) {
        if ((text[i] & 0xc0) != 0x80)
            return 0;
        value = value << 6 | (text[i] & 0x3f);
    }
    const bool surrogate = value >= 0xd800 && value < 0xe000;
    return value >= lowest[n] && value <= 0x10ffff && !surrogate ? n : 0;
}

/* C1 controls and marks that turn the direction of text would still play with a terminal. */
static bool is_shown(const unsigned char *text, size_t n)
{
    if (n == 1)
        return text[0] >= ' ' && text[0] != '\\' && text[0] != 0x7f;
    if (n == 2)
        return !(text[0] == 0xc2 && text[1] < 0xa0);
    return !(n == 3 && text[0] == 0xe2 &&
             ((text[1] == 0x80 && text[2] >= 0x8b && text[2] <= 0xae) ||
              (text[1] == 0x81 && text[2] >= 0xa0)));
}

char *printable(const char *text, size_t length)
{
    char *shown = malloc(4 * length + 1);
    if (!shown)
        return NULL;
    char *to = shown;
    for (size_t i = 0; i < length;) {
        const unsigned char *at = (const unsigned char *)text + i;
        const size_t n = character(at, length - i);
        if (n > 0 && is_shown(at, n)) {
            memcpy(to, at, n);
            to += n;
            i += n;
            continue;
        }
        for (const size_t end = i + (n ? n : 1); i < end; i++)
            to += sprintf(to, "\\%03o", (unsigned)(unsigned char)text[i]);
    }
    *to = '\0';
    return shown;
}
