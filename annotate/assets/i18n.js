// The page's words.

export const LANGUAGES = { en: "English", zh: "中文" };

/** The language of the one who reads: as chosen, else as the browser asks, else English. */
export function pick(chosen) {
  if (chosen in LANGUAGES) return chosen;
  return navigator.languages.map((tag) => tag.split("-")[0]).find((tag) => tag in LANGUAGES) ?? "en";
}

/** The function `t(key, values)` of a language: its text with {names} filled in; `key.one` where `n` is one. */
export async function load(language) {
  const response = await fetch(new URL(`./i18n/${language}.json`, import.meta.url));
  const texts = await response.json();
  const rules = new Intl.PluralRules(language);
  const numbers = new Intl.NumberFormat(language);
  const t = (key, values = {}) => {
    const form = "n" in values ? `${key}.${rules.select(values.n)}` : key;
    const text = texts[form] ?? texts[key] ?? key;
    return text.replace(/\{(\w+)\}/g, (_, name) =>
      typeof values[name] === "number" ? numbers.format(values[name]) : values[name],
    );
  };
  t.language = language;
  t.has = (key) => key in texts;
  return t;
}
