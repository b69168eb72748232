// The answers of a page to views, as JSON: node ask.js page.html views.json
import { readFileSync } from "node:fs";
import { Release, TooLarge } from "./engine.js";
import { fromText, questionOf } from "./page.js";

const [page, views] = process.argv.slice(2).map(path => readFileSync(path, "utf8"));
const data = JSON.parse(page.match(/id="release">(.*?)<\/script>/s)[1]), release = new Release(data);
const numbers = each => Array.from(each, number => (Number.isFinite(number) ? number : null));
const answers = JSON.parse(views).map(text => {
  const question = questionOf(data, fromText(text, data));
  try {
    const found = release.answer(question.asked);
    return { text: question.text, estimates: numbers(found.estimates), low: numbers(found.low), high: numbers(found.high), basis: [...found.basis], why: found.why };
  } catch (error) {
    if (!(error instanceof TooLarge)) throw error;
    return { text: question.text, refused: error.message };
  }
});
process.stdout.write(JSON.stringify(answers));
