/* Tokens as text, by a vocabulary beside the model: tokenizer.json (of Hugging Face's tokenizers) or vocab.json, {"token": id}.
 *
 * Three ways of writing bytes are undone: byte-level BPE's letters (GPT-2), U+2581 for a space and <0xNN> for a byte (SentencePiece). Nothing is
 * encoded: prompts are token ids. */
#ifndef SY_CLI_TOKEN_TEXT_H
#define SY_CLI_TOKEN_TEXT_H

#include <stddef.h>
#include <stdint.h>

struct sy_vocabulary;

/* ENOTFOUND, EIO; ECORRUPT: no JSON, or no vocabulary in it; ENOMEM_HOST. */
int sy_vocabulary_open(const char *path, struct sy_vocabulary **out);
void sy_vocabulary_close(struct sy_vocabulary *vocabulary); /* NULL is fine */
/* The token's bytes, which may be a part of a character; at most `room`. 0: the vocabulary does not have it. */
size_t sy_vocabulary_text(const struct sy_vocabulary *vocabulary, int64_t token, char *to,
                          size_t room);

#endif
