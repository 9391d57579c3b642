/* The least that is a PNG: one grey-to-fire image, not compressed. */
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static uint32_t png_crc(const unsigned char *bytes, size_t length)
{
    uint32_t crc = ~0u;
    for (size_t i = 0; i < length; i++) {
        crc ^= bytes[i];
        for (int bit = 0; bit < 8; bit++)
            crc = crc & 1 ? crc >> 1 ^ 0xedb88320u : crc >> 1;
    }
    return ~crc;
}

static void png_number(unsigned char *at, uint32_t number)
{
    for (int i = 0; i < 4; i++)
        at[i] = (unsigned char)(number >> (24 - 8 * i));
}

/* `chunk` has 4 bytes of room before its name and 4 after its data. */
static void png_chunk(FILE *file, unsigned char *chunk, const char *name, size_t length)
{
    memcpy(chunk + 4, name, 4);
    png_number(chunk, (uint32_t)length);
    png_number(chunk + 8 + length, png_crc(chunk + 4, length + 4));
    fwrite(chunk, 1, length + 12, file);
}

/* Writes values between 0 and 1 as colours from black over red and yellow to white. */
static int png_write(const char *path, const double *values, int width, int height)
{
    size_t row = (size_t)width * 3 + 1, at = 8;
    unsigned char *data = malloc((row + 5) * (size_t)height + 32), head[25] = {0};
    FILE *file = fopen(path, "wb");
    if (!data || !file)
        return -1;
    uint32_t a = 1, b = 0; /* Adler-32 */
    data[at++] = 0x78;
    data[at++] = 0x01;
    for (int y = 0; y < height; y++) { /* a stored block for every row */
        unsigned char block[5] = {y == height - 1, row & 255, row >> 8 & 255, ~row & 255, ~row >> 8 & 255};
        memcpy(data + at, block, 5);
        unsigned char *pixel = data + at + 5;
        *pixel++ = 0;
        for (int x = 0; x < width; x++)
            for (int colour = 0; colour < 3; colour++) {
                double level = 3 * values[y * width + x] - colour;
                *pixel++ = (unsigned char)(255 * (level < 0 ? 0 : level > 1 ? 1 : level));
            }
        for (size_t i = 0; i < row; i++) {
            a = (a + data[at + 5 + i]) % 65521;
            b = (b + a) % 65521;
        }
        at += 5 + row;
    }
    png_number(data + at, b << 16 | a);
    png_number(head + 8, (uint32_t)width);
    png_number(head + 12, (uint32_t)height);
    memcpy(head + 16, "\x08\x02\x00\x00\x00", 5);
    fwrite("\x89PNG\r\n\x1a\n", 1, 8, file);
    png_chunk(file, head, "IHDR", 13);
    png_chunk(file, data, "IDAT", at + 4 - 8);
    png_chunk(file, head, "IEND", 0);
    free(data);
    return fclose(file);
}
