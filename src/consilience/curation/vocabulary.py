"""Words by which people name columns and write values, in the languages of several statistical offices.

What is missing here costs a draft an edit; what is too much makes it take a column for what it is not.
"""

import re
import unicodedata

TOKENS = ("na", "n/a", "#n/a", "nan", "null", "missing", "(blank)", "-", "--", ".", "..", "...", "?", "*", ":", "<na>")
"""Texts that mean that there is no value wherever they stand."""
NUMBER_TOKENS = ("n", "x", "none", "nil", "unknown", "k.a.", "s.d.", "c", "s", "(x)", "u", "bbbb", "inf", "")
"""Words that mean it among numbers alone."""
SENTINELS = ("-1", "-2", "-3", "-7", "-8", "-9", "-77", "-88", "-97", "-98", "-99", "-997", "-998", "-999", "-9999")
HIGH_SENTINELS = ("97", "98", "99", "997", "998", "999", "9997", "9998", "9999", "99999", "999999")
"""Numbers that mean it where they lie apart from all others."""
WATCHED = (*TOKENS, *NUMBER_TOKENS, *SENTINELS, *HIGH_SENTINELS)

YES_NO = (
    "no yes", "n y", "false true", "f t", "nein ja", "n j", "non oui", "n o", "no si", "n s", "nao sim", "nee ja",
    "nej ja", "ne da", "off on", "0 1", "absent present", "negative positive", "unchecked checked",
)  # fmt: skip
TICKS = ("x", "yes", "y", "1", "true", "ja", "oui", "si", "*", "✓", "✔")
"""What stands alone where the other answer is left blank."""

ASIDE = frozenset(
    re.split(
        r"\|",
        "unknown|other|others|refused|none|na|n a|don't know|dont know|no answer|not stated|not applicable|unbekannt"
        "|andere|keine angabe|weiss nicht|ns nc|no sabe|desconocido|autre|inconnu|prefer not to say|not available"
        "|missing|k a|keine antwort|weiss ich nicht|ne sait pas|sans reponse|no contesta|not asked",
    )
)
"""Answers that stand beside a scale and not on it."""
SCALES = (
    "very low|low|medium/middle/moderate/average/mid/normal|high|very high",
    "sehr niedrig|niedrig/gering|mittel|hoch|sehr hoch",
    "muy bajo/muy baja|bajo/baja|medio/media|alto/alta|muy alto/muy alta",
    "tres faible|faible/bas|moyen/moyenne|eleve/fort/haut|tres eleve/tres fort",
    "xxs|xs/extra small|s/small|m/medium|l/large|xl/extra large|xxl|xxxl",
    "very bad|bad|very poor|poor|fair|average|good|very good|excellent/outstanding",
    "sehr schlecht|schlecht|mittelmassig/mittel|gut|sehr gut",
    "muy malo/muy mala|malo/mala|regular|bueno/buena|muy bueno/muy buena",
    "tres mauvais|mauvais|assez bon|bon|tres bon",
    "insuffisant|passable/fragile|assez bien/satisfaisant|bien|tres bien|excellent",
    "ungenugend|mangelhaft|ausreichend|befriedigend|gut|sehr gut",
    "unsatisfactory/inadequate|needs improvement/requires improvement|satisfactory|good|outstanding",
    "fail/failed|pass/passed|merit|distinction",
    "below basic|basic|proficient|advanced",
    "never|hardly ever|rarely/seldom|sometimes/occasionally|often/frequently|usually|almost always|always",
    "nie|selten|manchmal|oft|haufig|immer",
    "nunca|casi nunca|rara vez|a veces|a menudo|casi siempre|siempre",
    "jamais|rarement|parfois|souvent|toujours",
    "strongly disagree/disagree strongly/totally disagree|disagree|somewhat disagree|slightly disagree"
    "|neither agree nor disagree/neutral/undecided|slightly agree|somewhat agree|agree"
    "|strongly agree/agree strongly/totally agree",
    "stimme gar nicht zu|stimme nicht zu|stimme eher nicht zu|teils teils/neutral|stimme eher zu|stimme zu"
    "|stimme voll zu",
    "very dissatisfied|dissatisfied|neutral/neither|satisfied|very satisfied",
    "sehr unzufrieden|unzufrieden|teils teils/neutral|zufrieden|sehr zufrieden",
    "tres insatisfait|insatisfait|neutre/ni l'un ni l'autre|satisfait|tres satisfait",
    "muy insatisfecho|insatisfecho|neutral/indiferente|satisfecho|muy satisfecho",
    "pas du tout d'accord|plutot pas d'accord/pas d'accord|neutre/ni d'accord ni pas d'accord|plutot d'accord/d'accord"
    "|tout a fait d'accord",
    "very unlikely|unlikely|neutral|likely|very likely",
    "not at all|a little/slightly|somewhat|moderately|quite a bit|very|very much|extremely",
    "none/no|minimal|mild|moderate|severe|very severe/critical",
    "no schooling/none|preschool|1st 4th|5th 6th|primary/elementary/primary school/basic|7th 8th|9th|10th|11th|12th"
    "|lower secondary/secondary/secondary school|upper secondary|high school/hs grad/high school graduate|vocational"
    "|some college|assoc voc|assoc acdm/associate/associates|bachelors/bachelor/tertiary/university|masters/master"
    "|prof school|doctorate/doctoral/phd",
    "some high school|high school|some college|associate's degree|bachelor's degree|master's degree",
    "fair|good|very good|premium|ideal",
    "i|ii|iii|iv|v|vi|vii|viii|ix|x",
    "first|second|third|fourth|fifth",
    "junior|intermediate|senior|lead",
    "beginner|intermediate|advanced|expert",
    "rural|suburban|urban",
    "baby/infant|child|teenager/adolescent|adult|senior/elderly",
    "mon/monday|tue/tues/tuesday|wed/wednesday|thu/thur/thurs/thursday|fri/friday|sat/saturday|sun/sunday",
    "montag/mo|dienstag/di|mittwoch/mi|donnerstag/do|freitag/fr|samstag/sa|sonntag/so",
    "lunes|martes|miercoles|jueves|viernes|sabado|domingo",
    "lundi|mardi|mercredi|jeudi|vendredi|samedi|dimanche",
    "jan/january|feb/february|mar/march|apr/april|may|jun/june|jul/july|aug/august|sep/sept/september|oct/october"
    "|nov/november|dec/december",
    "januar|februar|marz|april|mai|juni|juli|august|september|oktober|november|dezember",
    "enero|febrero|marzo|abril|mayo|junio|julio|agosto|septiembre|octubre|noviembre|diciembre",
    "janvier|fevrier|mars|avril|mai|juin|juillet|aout|septembre|octobre|novembre|decembre",
    "winter|spring|summer|autumn/fall",
    "morning|noon|afternoon|evening|night",
)
"""Words in their order; alternatives for one place are divided by a slash."""

GRADED = (
    r"(grade|level|stage|step|band|tier|phase|class|euro|quintile|quartile|decile|stufe|klasse|niveau|nivel|grado"
    r"|etape|pflegegrad)(?: |-)?(\d{1,2})"
)
"""Words that make a scale with the number behind them."""

NAMED = {
    "identifier": r"ids?|key|uuid|guid|serial|serialno|identifier|identif\w+|seq|seqn|rowid|index|lfdnr|kennung|caseid"
    r"|respid|pid|hhid|personid|patientid|idno|subjid|seqno|idnum|orderid|ticket|receipt|invoice",
    "counter": r"number|num|no|nr|nummer|numero|seq|count|order|lfd|line|row|record|case|sample",
    "personal": r"e ?mail|mail|phone|telephone|telefono?|tel|mobile|cell|fax|ssn|nif|dni|iban|passport|licen[cs]e plate"
    r"|street|strasse|address|adresse|anschrift|direccion|domicilio|calle|url|website|homepage|ip|ip address|user ?name"
    r"|login|twitter|surname|vorname|nachname|familienname|apellidos?|prenom|nom|nombre"
    r"|(?:first|last|full|family|given|maiden|middle|sur|patient|customer|client|person|employee|contact|student)"
    r" ?names?|names?|nhs number",
    "prose": r"comments?|remarks?|notes?|bemerkung(?:en)?|kommentar|anmerkung|observacion(?:es)?|commentaires?"
    r"|description|beschreibung|descripcion|text|freitext|narrative|reason|other specify|specify|feedback|review"
    r"|message|diagnosis text|job title|title",
    "weight": r"p?we?i?gh?ts?|\w*wgt\w*|p?wgtp\d*|pwgt\w*|pweights?|\w*wt|\w*wt \d+|\w+wght|fnlwgt|perwt|hhwt|wtfinl"
    r"|asecwt|hochrechnung\w*|hochrechnungsfaktor|gewicht\w*|gewichtung\w*|hrf|ponderacion|ponderador"
    r"|pond|poids|pesos?|facto?r elev|facto?r expansion|fac ?exp\w*|factorel|factor|expansion factor|coef \w+|repwt\w*",
    "sampling": r"survey|sampl\w+|person|household|hh|design|final|repl?\w*|stat\w*|calibrat\w+|non ?response|grossing"
    r"|popul\w*|case|analysis|base",
    "code": r"cd|code|codes|kode|codigo|cod|schlussel|kennziffer|soc|noc|isco\d*|naics\w*|nace\w*|isic\w*|icd\w*|atc"
    r"|drg|cpt|zip|zipcode|zip ?code|postal|postcode|postal ?code|plz|cp|fips|puma\d*|precinct|tract|district"
    r"|region|county|state|indp|occp|naicsp|socp|pow\w+|ward|block|nuts\d*|gemeinde|ags|insee|municipio|provincia|cnae|kldb"
    r"|wz|wz\d+|ind|occ|industry|occupation|branch|sector|area|zone|station|school|route|category|class|type|group|cluster"
    r"|stratum|strata",
    "place": r"lat|latitude|lon|lng|longitude|long|breite|lange|latitud|longitud|easting|northing"
    r"|[xy] ?coord\w*|coord\w*|xcoord|ycoord|utm\w*|geom|geometry|georef\w*|location|wkt|point|lat ?lon"
    r"|geo ?point|gps\w*",
    "measure": r"cc|ccm|kwh?|hp|hubraum|displacement|power|price|cost|amount|income|salary|wages?|earnings|turnover"
    r"|revenue|mileage|distance|length|height|width|volume|speed|duration|minutes|hours|days|score|balance|betrag|preis"
    r"|kosten|einkommen|umsatz|miete|rent|ingresos?|gastos?|salario|precio|importe|revenu|prix|salaire|montant|loyer",
    "age": r"age|agep|alter|edad|idade|eta|leeftijd|ages|alder",
    "year": r"year|yr|\w*jahr|ano|annee|anno|jaar|yob|born|birth ?year|vintage|model ?year|baujahr|ejercicio",
}
PATTERNS = {what: re.compile(rf"(?:^|.* )(?:{words})(?: .*|$)") for what, words in NAMED.items()}
CERTAIN = (
    r"surname|vorname|nachname|familienname|apellido|prenom|(?:first|last|full|family|given|maiden|middle|sur) ?name"
    r"|^nom$|nom de famille"
)
"""Names of people, however few there are."""
BODY = re.compile(r"body|birth|baby|mass|kg|lbs?|grams?|vehicle|car|truck|load|net|gross|product|item|parcel|curb|fish")
UNITS = re.compile(r"^(?P<title>.*\S)\s*[(\[](?P<unit>[^()\[\]]{1,12})[)\]]$")


def folded(text: str) -> str:
    """A text without capitals, accents and signs between words.

    >>> folded("  Très-Élevé_1 "), folded("Associate's degree")
    ('tres eleve 1', "associate's degree")
    """
    plain = "".join(sign for sign in unicodedata.normalize("NFKD", text) if not unicodedata.combining(sign))
    return " ".join(re.sub(r"[_\-–—/.,:;()\[\]]+", " ", plain.replace("ß", "ss").casefold()).split())


def words_of(name: str) -> str:
    """The words of a column's name, however they are joined.

    >>> words_of("PassengerId"), words_of("X_COORD_CD"), words_of("pwgtp12")
    ('passenger id', 'x coord cd', 'pwgtp12')
    """
    return folded(re.sub(r"(?<=[a-z])(?=[A-Z])|(?<=[A-Z])(?=[A-Z][a-z])", " ", name))


def _scale_places() -> tuple[dict[str, int], ...]:
    return tuple(
        {folded(word): place for place, words in enumerate(scale.split("|")) for word in words.split("/")}
        for scale in SCALES
    )


PLACES = _scale_places()
